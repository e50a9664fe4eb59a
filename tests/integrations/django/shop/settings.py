"""Settings of the shop. SHOP_DATABASE is a URL of PostgreSQL or a path of SQLite, SHOP_ENDPOINT the broker."""

import os
import re

_DATABASE = os.environ.get("SHOP_DATABASE", ":memory:")


def database(text: str) -> dict[str, str]:
    """As DATABASES has it, of USER@HOST:PORT/NAME."""
    if "://" not in text:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": text}
    kind, user, host, port, name = re.split(r"://|[@:/]", text)
    engine = "postgresql" if kind.startswith("postgres") else "mysql"
    return {"ENGINE": f"django.db.backends.{engine}", "USER": user, "HOST": host, "PORT": port, "NAME": name}


DATABASES = {"default": database(_DATABASE)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["popmq_integrations.django", "tests.integrations.django.shop"]
SECRET_KEY = "of tests"
USE_TZ = True
QUEUES = ["default", "mails"]
TASKS = {
    "default": {
        "BACKEND": "popmq_integrations.django.PopMQBackend",
        "QUEUES": QUEUES,
        "OPTIONS": {"endpoint": os.environ.get("SHOP_ENDPOINT", "127.0.0.1:1")},
    }
}
