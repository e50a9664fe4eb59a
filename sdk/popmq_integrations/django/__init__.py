"""PopMQ behind Django's tasks: `django.tasks` of Django 6, or `django_tasks`, its backport, on Django 5.2.

    INSTALLED_APPS = [..., "popmq_integrations.django"]
    TASKS = {
        "default": {
            "BACKEND": "popmq_integrations.django.PopMQBackend",
            "QUEUES": ["default", "mails"],
            "OPTIONS": {"endpoint": "127.0.0.1:8081"},
        }
    }

    task.enqueue ─▶ backend ─┬─ in a transaction ─▶ outbox ─┐
                             └─ else ───────────────────────┴▶ topic django-mails ─▶ popmq_worker ─▶ ack and result
    task.get_result ◀─ records ◀── the history of the message, and its result

`options` reads OPTIONS and finds what is wrong in them, `processes` has the client and the outbox of each process,
`records` the bodies of messages and results, `working` the worker that `manage.py popmq_worker` starts.
docs/decisions/0062-django-tasks.md says why it is so.
"""

from popmq_integrations.django.backend import PopMQBackend

__all__ = ["PopMQBackend"]
