"""A small project of Django with tasks: for the tests here, and for campaigns that kill its processes.

    DJANGO_SETTINGS_MODULE=tests.integrations.django.shop.settings

The environment has the rest: see settings.py.
"""
