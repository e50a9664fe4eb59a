"""A project whose access keys have no right but those that the page names."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.access.signing import secret_of, write_keys

pytestmark = pytest.mark.slow

RIGHTS = ["send:django-*", "receive:django-*/django", "receive:%RESULT%django/callers"]
KEYS = {"root": ["*"], "shop": RIGHTS}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    keys = tmp_path / "keys.toml"
    write_keys(keys, KEYS)
    with EmbeddedBroker(tmp_path / "data", sync="none", access_keys=keys) as broker:
        yield broker


@pytest.fixture
def options(broker: EmbeddedBroker) -> dict[str, str]:
    return {"endpoint": broker.endpoint, "access_key": "shop", "secret": secret_of("shop")}


def test_without_the_right_to_create_a_missing_topic_is_an_error_that_says_so(
    tasks_of: Callable[..., Any], options: dict[str, str]
) -> None:
    with pytest.raises(errors.PermissionDenied, match="admin"):
        tasks_of(**options).add.enqueue(1, 2)


async def test_with_topics_that_an_operator_has_made_tasks_run_also_in_a_transaction(
    tasks_of: Callable[..., Any], broker: EmbeddedBroker, options: dict[str, str]
) -> None:
    def enqueue() -> Any:
        with popmq.Client(broker.endpoint, access_key="root", secret=secret_of("root")) as root:
            for queue in ("default", "mails"):
                root.topics.create(f"django-{queue}", type="PRIORITY", queues=201)
            root.groups.create("django", results_keep="1h")
        from django.db import transaction

        tasks = tasks_of(**options)
        with transaction.atomic(using="shop"):
            return tasks.add.enqueue(1, 2)

    result = await asyncio.to_thread(enqueue)
    from popmq_integrations.django import working

    worker = await asyncio.to_thread(working.worker_of)
    serving = asyncio.create_task(worker.serve())
    async with asyncio.timeout(60):
        while not result.is_finished:
            await result.arefresh()
    worker.stop()
    assert await serving
    assert result.return_value == 3
