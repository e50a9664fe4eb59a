"""Django's settings, of which a process has one: the first test that needs them configures it."""

from typing import Any


def configure(**databases: dict[str, Any]) -> None:
    """Adds databases by alias, or replaces them."""
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            INSTALLED_APPS=["popmq_integrations.django"],
            SECRET_KEY="of tests",
            USE_TZ=True,
        )
        django.setup()
    default = connections.settings["default"]
    made = connections.configure_settings({"default": dict(default), **databases})
    for alias in databases:
        if connections.settings.get(alias) != made[alias]:
            connections.settings[alias] = made[alias]
            if hasattr(connections._connections, alias):  # of what had this alias before
                del connections[alias]


def postgresql(url: str) -> dict[str, str]:
    """A database of postgresql://USER@HOST:PORT/NAME."""
    return _server("postgresql", url)


def mysql(url: str) -> dict[str, str]:
    """A database of mysql://USER@HOST:PORT/NAME."""
    return _server("mysql", url)


def sqlite(path: object) -> dict[str, str]:
    """A database in a file."""
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}


def _server(engine: str, url: str) -> dict[str, str]:
    user, _, place = url.partition("://")[2].partition("@")
    host, _, rest = place.partition(":")
    port, _, name = rest.partition("/")
    return {"ENGINE": f"django.db.backends.{engine}", "USER": user, "HOST": host, "PORT": port, "NAME": name}
