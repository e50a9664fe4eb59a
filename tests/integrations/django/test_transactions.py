"""A task that is enqueued in a transaction runs if and only if that commits."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from popmq import errors
from popmq.testing import Broker, Handled

Work = Callable[..., list[Handled]]


class Stop(Exception):
    """Rolls back."""


def arguments(handled: list[Handled]) -> list[int]:
    return sorted(each.delivery.json()["args"][0] for each in handled)


def decided() -> None:
    """Waits for what this process has in transactions that have ended."""
    from django.conf import settings

    from popmq_integrations.django.seam import task_backends

    assert settings.TASKS
    assert task_backends["default"].process.outbox.flush(30.0)


@pytest.mark.slow
@pytest.mark.smoke
def test_a_task_exists_from_the_commit_on_and_what_was_rolled_back_never_does(
    popmq_broker: Broker, tasks: Any, work: Work
) -> None:
    from django.db import transaction

    from popmq_integrations.django.seam import TaskResultDoesNotExist

    with transaction.atomic(using="shop"):
        result = tasks.paid.enqueue(1)
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()
        with contextlib.suppress(Stop), transaction.atomic(using="shop"):
            tasks.paid.enqueue(2)
            raise Stop
        with transaction.atomic(using="shop"):
            tasks.paid.enqueue(3)
        assert work() == []
    with contextlib.suppress(Stop), transaction.atomic(using="shop"):
        tasks.paid.enqueue(4)
        raise Stop
    result.refresh()
    assert result.status == "READY"
    decided()
    assert popmq_broker.client().transactions.list().total == 0
    assert arguments(work()) == [1, 3]


def test_a_transaction_of_another_database_decides_nothing(tasks: Any, work: Work) -> None:
    from django.db import transaction

    with contextlib.suppress(Stop), transaction.atomic(using="default"):
        tasks.paid.enqueue(1)
        raise Stop
    assert arguments(work()) == [1]


def test_an_enqueue_that_raises_sends_nothing_even_if_the_transaction_goes_on(tasks: Any, work: Work) -> None:
    from django.db import connections, transaction

    with connections["shop"].cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS refused (number int)")
    with transaction.atomic(using="shop"):
        tasks.paid.enqueue(1)
        with pytest.raises(errors.InvalidField, match=r"4194304|4,194,304|4 MiB"):
            tasks.paid.enqueue("x" * 5_000_000)
        with connections["shop"].cursor() as cursor:
            cursor.execute("INSERT INTO refused VALUES (1)")
    decided()
    assert arguments(work()) == [1]


def test_with_a_database_that_cannot_be_asked_tasks_are_sent_after_the_commit(
    tasks_of: Callable[..., Any], work: Work
) -> None:
    from django.db import transaction

    tasks = tasks_of(database="default")  # in memory
    with transaction.atomic():
        tasks.paid.enqueue(1)
        assert work() == []
    with contextlib.suppress(Stop), transaction.atomic():
        tasks.paid.enqueue(2)
        raise Stop
    assert arguments(work()) == [1]


def test_what_is_sent_after_the_commit_makes_its_topic(tasks_of: Callable[..., Any], work: Work) -> None:
    from django.db import transaction

    tasks = tasks_of(database="default")  # in memory
    with transaction.atomic():
        tasks.paid.enqueue(1)
    assert arguments(work()) == [1]


def test_migrate_makes_the_table_of_the_outbox(tasks: Any) -> None:
    from django.core.management import call_command
    from django.db import connections

    with connections["shop"].cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS popmq_outbox")
    call_command("migrate", database="shop", verbosity=0)
    assert "popmq_outbox" in connections["shop"].introspection.table_names()


@pytest.mark.slow
def test_a_result_may_be_asked_for_right_after_the_commit(tasks: Any) -> None:
    """The broker shows a message some milliseconds after that. Most of these would ask too early."""
    from django.db import transaction

    for number in range(50):
        with transaction.atomic(using="shop"):
            result = tasks.paid.enqueue(number)
        result.refresh()
        assert result.status == "READY"
