"""Settings of the shop."""

import os

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DATABASE", "shop.db")}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["popmq_integrations.django", "shop"]
SECRET_KEY = "of an example"
TASKS = {
    "default": {
        "BACKEND": "popmq_integrations.django.PopMQBackend",
        "OPTIONS": {"endpoint": os.environ.get("POPMQ_ENDPOINT", "127.0.0.1:8081"), "max_attempts": 5},
    }
}
