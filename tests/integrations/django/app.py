"""The shop as a program that a campaign kills: transactions, one after the other, each a row and a task about it.

    python -m tests.integrations.django.app NAME SEED                    places orders until it is killed
    python -m tests.integrations.django.manage popmq_worker              runs the tasks

Both have SHOP_ENDPOINT and SHOP_DATABASE in their environment, as shop/settings.py says.
The rows of the table `orders` and the tasks `paid` that have run or wait must be the same. A transaction may have a
savepoint that is rolled back, may be rolled back, or raise in the middle.
"""

import contextlib
import os
import random
import sys

CREATE = "CREATE TABLE IF NOT EXISTS orders (id VARCHAR(64) PRIMARY KEY)"


class Stop(Exception):
    """Rolls back."""


def place_orders(name: str, chance: random.Random) -> None:
    """Until this process is killed."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.integrations.django.shop.settings")
    django.setup()
    from django.db import connection, transaction

    from tests.integrations.django.shop.tasks import paid

    def order(id: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [id])
        paid.enqueue(id)

    paid.get_backend().process.declare("django-default")
    print("placing", flush=True)
    number = 0
    while True:
        number += 1
        with contextlib.suppress(Stop), transaction.atomic():
            order(f"{name}-{number}")
            if chance.random() < 0.3:
                with contextlib.suppress(Stop), transaction.atomic():
                    order(f"{name}-{number}-inner")
                    if chance.random() < 0.5:
                        raise Stop
            if chance.random() < 0.2:
                raise Stop


if __name__ == "__main__":
    place_orders(sys.argv[1], random.Random(sys.argv[2]))
