"""A broker, and a project of Django whose tasks go to it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from popmq.testing import Broker, Handled
from tests.integrations.django import project

pytest.importorskip("django")

QUEUES = ["default", "mails"]


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the database: Django knows one for the whole process."""
    return tmp_path_factory.mktemp("django") / "shop.db"


@pytest.fixture
def tasks_of(popmq_broker: Broker, path: Path) -> Iterator[Callable[..., Any]]:
    """Makes TASKS what a test needs, with these OPTIONS; returns the tasks of the shop."""
    project.configure(shop=project.sqlite(path))
    from django.db import connections
    from django.test import override_settings

    begun: list[Any] = []

    def make(**options: Any) -> Any:
        given = {"endpoint": popmq_broker.endpoint, "database": "shop", **options}
        backend = {"BACKEND": "popmq_integrations.django.PopMQBackend", "QUEUES": QUEUES, "OPTIONS": given}
        begun.append(override_settings(TASKS={"default": backend}))
        begun[-1].enable()
        from tests.integrations.django.shop import tasks

        return tasks

    yield make
    for one in reversed(begun):
        one.disable()
    connections.close_all()


@pytest.fixture
def tasks(tasks_of: Callable[..., Any]) -> Any:
    """The tasks of the shop, with the default OPTIONS."""
    return tasks_of()


@pytest.fixture
def work(popmq_broker: Broker) -> Callable[..., list[Handled]]:
    """Runs a worker of the project until no task is due."""

    def run(**given: Any) -> list[Handled]:
        from popmq_integrations.django import working

        return popmq_broker.work(working.worker_of(**given))

    return run
