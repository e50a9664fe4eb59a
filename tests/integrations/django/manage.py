"""manage.py of the shop, as each project of Django has one.

SHOP_ENDPOINT=HOST:PORT SHOP_DATABASE=shop.db python -m tests.integrations.django.manage popmq_worker
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.integrations.django.shop.settings")
    execute_from_command_line(sys.argv)
