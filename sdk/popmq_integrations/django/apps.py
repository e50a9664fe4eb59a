"""The app: it brings `manage.py popmq_worker`, and the checks of TASKS."""

from importlib import import_module

from django.apps import AppConfig

from popmq_integrations.django import seam


class PopMQConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """In INSTALLED_APPS as "popmq_integrations.django"."""

    name = "popmq_integrations.django"
    label = "popmq"
    verbose_name = "PopMQ"

    def ready(self) -> None:
        """Importing Django's checks of tasks registers them."""
        import_module(f"{seam.BaseTaskBackend.__module__.removesuffix('.backends.base')}.checks")
