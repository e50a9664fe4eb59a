"""A shop whose orders are invoiced by a task.

popmq serve, then in this folder, with popmq[django] and Django 6 (or 5.2 and django-tasks):
python manage.py migrate --run-syncdb; python manage.py popmq_worker & python manage.py order 7 8 9
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)
