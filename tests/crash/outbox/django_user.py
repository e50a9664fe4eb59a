"""A child that enqueues tasks of Django in its transactions, instead of messages in boxes."""

import contextlib
import mmap
import os
import random
from collections.abc import Iterator
from typing import Any

from tests.crash.outbox.users import Stop, User


def load(endpoint: str, database: str) -> None:
    """Imports what a child needs, and connects to nothing."""
    os.environ |= {
        "SHOP_ENDPOINT": endpoint,
        "SHOP_DATABASE": database,
        "DJANGO_SETTINGS_MODULE": "tests.integrations.django.shop.settings",
    }
    import django

    django.setup()
    from tests.integrations.django.shop import tasks

    assert tasks.paid


class DjangoUser(User):
    """Its orders are rows and tasks, which `transaction.atomic` keeps together."""

    def __init__(self, endpoint: str, database: str, name: str, place: mmap.mmap, chance: random.Random) -> None:
        self._name, self._place, self._chance = name, place, chance
        self._count = 0
        from django.db import connection

        from tests.integrations.django.shop.tasks import paid

        self._execute = connection.cursor().execute
        self._paid = paid

    def run(self) -> None:
        """Until it is killed."""
        while True:
            with contextlib.suppress(Stop), self._transaction():
                self._work(None)
            self._at(b"-")

    def _send(self, box: Any, id: str) -> None:
        self._paid.enqueue(id)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        from django.db import transaction

        with transaction.atomic():
            try:
                yield
            except Stop:
                self._at(b"r")
                raise
            self._at(b"c")
        self._at(b"C")

    @contextlib.contextmanager
    def _savepoint(self) -> Iterator[None]:
        from django.db import transaction

        with contextlib.suppress(Stop), transaction.atomic():
            yield
