"""The app: it brings `manage.py popmq_worker`, and the checks of TASKS."""

from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from popmq_integrations.django import seam
from popmq_integrations.django.backend import PopMQBackend


class PopMQConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """In INSTALLED_APPS as "popmq_integrations.django"."""

    name = "popmq_integrations.django"
    label = "popmq"
    verbose_name = "PopMQ"

    def ready(self) -> None:
        """Importing Django's checks of tasks registers them."""
        import_module(f"{seam.BaseTaskBackend.__module__.removesuffix('.backends.base')}.checks")
        post_migrate.connect(make_tables, sender=self)


def make_tables(using: str, **_: Any) -> None:
    """With `migrate`, the table of the outbox is made in the database whose transactions decide."""
    for backend in seam.task_backends.all():
        if isinstance(backend, PopMQBackend):
            backend.process.prepare(using)
