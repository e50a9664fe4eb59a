"""Schedules of both clients."""

from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import FakeClock
from tests.sdk.conftest import GROUP, Connect

TOPIC = "chores"


@pytest.fixture
async def client(connect: Connect, popmq_clock: FakeClock) -> Any:
    """A client with a topic and a group, on a broker whose time stands still."""
    client = connect()
    await client.topics.create(TOPIC)
    await client.groups.create(GROUP)
    return client


@pytest.mark.slow
async def test_a_schedule_sends_its_message_at_its_times(client: Any, advance: Any, popmq_clock: FakeClock) -> None:
    message = popmq.Message(b"go", key="k", more_keys=("l",), tag="t", properties={"a": "b"})
    made = await client.schedules.create("s", "0 * * * *", TOPIC, message, tz="Europe/Berlin", missed="all")
    assert (made.message, made.tz, made.missed, made.cron) == (message, "Europe/Berlin", "all", "0 * * * *")
    assert await client.schedules.create("s", "0 * * * *", TOPIC, message, tz="Europe/Berlin", missed="all") == made
    await advance((made.next_ms - popmq_clock.now_ms()) / 1000)
    (delivery,) = await client.pop(TOPIC, GROUP)
    assert (delivery.body, delivery.properties["popmq_schedule"]) == (b"go", "s")
    found = await client.schedules.get("s", upcoming=2)
    assert (found.sent, found.last_ms) == (1, made.next_ms)
    assert [round(time.timestamp() * 1000) for time in found.upcoming] == [
        made.next_ms + 3_600_000,
        made.next_ms + 7_200_000,
    ]


async def test_a_schedule_is_paused_run_resumed_listed_and_deleted(client: Any) -> None:
    await client.schedules.create("s", "@daily", TOPIC, "go")
    assert (await client.schedules.pause("s")).paused
    message_id = await client.schedules.run("s")
    assert [delivery.message_id for delivery in await client.pop(TOPIC, GROUP)] == [message_id]
    assert not (await client.schedules.resume("s")).paused
    assert [row.name for row in await client.schedules.list()] == ["s"]
    await client.schedules.delete("s")
    with pytest.raises(errors.ScheduleNotFound):
        await client.schedules.get("s")


async def test_an_invalid_schedule_is_refused_with_the_wrong_field(client: Any) -> None:
    with pytest.raises(errors.InvalidField, match="five"):
        await client.schedules.create("s", "nine o'clock", TOPIC, "go")
    with pytest.raises(errors.InvalidField, match="'often' is not one of"):
        await client.schedules.create("s", "@daily", TOPIC, "go", missed="often")
    with pytest.raises(TypeError, match="json"):
        await client.schedules.create("s", "@daily", TOPIC, {"a": 1})
    await client.schedules.create("s", "@daily", TOPIC, "go")
    with pytest.raises(errors.AlreadyExists, match="message"):
        await client.schedules.create("s", "@daily", TOPIC, "stay")
