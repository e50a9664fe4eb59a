"""A topic that is deleted and created again: positions of the one before are not taken for positions in it."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import popmq
from tests.sdk.conftest import GROUP, TOPIC, eventually
from tests.sdk.pulling.pulls import handle, later, next_of, soon, take

pytestmark = pytest.mark.usefixtures("popmq_clock")

NEW = [f"new{number}" for number in range(5)]


@pytest.fixture
async def narrow(client: Any) -> Any:
    """The client, with a topic of one queue and three messages."""
    await client.topics.delete(TOPIC)
    await client.topics.create(TOPIC, queues=1)
    await client.send(TOPIC, ["a", "b", "c"])
    return client


async def create_again(client: Any) -> None:
    await client.topics.delete(TOPIC)
    await client.topics.create(TOPIC, queues=1)
    await client.send(TOPIC, NEW)


async def take_later(consumer: Any, guard: Any, advance: Any) -> list[str]:
    """Handles as many deliveries as NEW has; a consumer that was held back checks again after a while."""
    seen = []
    for _ in NEW:
        waiting = soon(consumer)
        await eventually(partial(later, advance, waiting))
        seen.append((await handle(guard, await waiting)).text())
    return seen


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_the_file_of_a_topic_that_was_created_again_while_its_reader_was_away_is_not_used(
    narrow: Any, guard: Any, tmp_path: Path, start: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "offsets.json"
    async with narrow.broadcast_consume(TOPIC, offsets=file) as consumer:
        assert await take(consumer, guard, 3) == ["a", "b", "c"]
    await create_again(narrow)
    async with narrow.broadcast_consume(TOPIC, offsets=file, start=start) as consumer:
        assert await take(consumer, guard, 5) == NEW
    assert (
        f"orders was deleted and created again: it is read from its first message, not from the offsets of {file}"
        in (caplog.text)
    )
    known = json.loads(file.read_text())
    assert known == {
        "topic": TOPIC,
        "topic_created_ms": (await narrow.topics.get(TOPIC)).created_ms,
        "offsets": {"0": 5},
    }


async def test_a_topic_whose_messages_were_purged_is_the_same_topic(narrow: Any, guard: Any, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    async with narrow.broadcast_consume(TOPIC, offsets=file) as consumer:
        await take(consumer, guard, 3)
    await narrow.topics.purge(TOPIC)
    await narrow.send(TOPIC, ["d"])
    async with narrow.broadcast_consume(TOPIC, offsets=file) as consumer:
        assert await take(consumer, guard, 1) == ["d"]


@pytest.mark.parametrize("group", ["", GROUP])
async def test_a_reader_that_held_a_message_meanwhile_goes_on_with_the_first_message_of_the_new_topic(
    narrow: Any, guard: Any, advance: Any, group: str
) -> None:
    """The group has joined the new topic already, so neither its mode nor its position shows that it is new."""
    options: dict[str, Any] = {"flow": popmq.FlowControl(count=0), "max_messages": 1, "start": "earliest"}
    made = narrow.pull_consume(TOPIC, group, **options) if group else narrow.broadcast_consume(TOPIC, **options)
    async with made as consumer:
        held = await next_of(consumer)
        await create_again(narrow)
        if group:
            await narrow.groups.set_consume_mode(TOPIC, group, "PULL")
        held.ack()
        assert await take_later(consumer, guard, advance) == NEW


async def test_a_message_of_the_topic_before_is_not_sent_back_as_one_of_the_new(
    narrow: Any, guard: Any, advance: Any
) -> None:
    flow = popmq.FlowControl(count=0)
    async with narrow.pull_consume(TOPIC, GROUP, flow=flow, max_messages=1, start="earliest") as consumer:
        held = await next_of(consumer)
        await create_again(narrow)
        await narrow.groups.set_consume_mode(TOPIC, GROUP, "PULL")
        held.reject("of the topic before")
        assert await take_later(consumer, guard, advance) == NEW
    assert not (await narrow.messages.browse(f"%DLQ%{GROUP}")).deliveries
