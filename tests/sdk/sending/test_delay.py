"""Messages for later, and messages that go first."""

from datetime import UTC, datetime
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import FakeClock
from tests.sdk.conftest import GROUP, Connect

MAIL = "mail"


@pytest.fixture
async def client(connect: Connect, popmq_clock: FakeClock) -> Any:
    """A client with a topic that takes delayed messages, on a broker whose time stands still."""
    client = connect()
    await client.topics.create(MAIL, type="DELAY")
    await client.groups.create(GROUP)
    return client


async def bodies(client: Any, topic: str = MAIL) -> list[str]:
    return [delivery.text() for delivery in await client.pop(topic, GROUP, max_messages=100)]


def test_the_delays_that_have_a_name_are_the_eighteen() -> None:
    names = " ".join(popmq.DELAY_LEVELS)
    assert names == "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    assert [popmq.DELAY_LEVELS[name] for name in ("1s", "10m", "2h")] == [1.0, 600.0, 7200.0]


@pytest.mark.parametrize("delay", [600.0, "10m"])
async def test_a_delayed_message_comes_when_its_delay_is_over_and_not_before(
    client: Any, advance: Any, delay: float | str
) -> None:
    receipt = await client.send(MAIL, popmq.Message("later", delay=delay))
    assert (receipt.queue, receipt.offset, bool(receipt.recall_handle)) == (-1, -1, True)
    await advance(599.999)
    assert await bodies(client) == []
    await advance(0.001)
    assert await bodies(client) == ["later"]


async def test_a_time_may_be_a_datetime_or_seconds(client: Any, advance: Any, popmq_clock: FakeClock) -> None:
    due = popmq_clock.now() + 60.0
    moments: list[datetime | float] = [due, datetime.fromtimestamp(due, UTC), datetime.fromtimestamp(due)]
    await client.send(MAIL, [popmq.Message(str(number), deliver_at=each) for number, each in enumerate(moments)])
    listed = await client.messages.list_delayed(MAIL)
    assert [message.due_ms for message in listed.messages] == [popmq_clock.now_ms() + 60_000] * 3
    await advance(60.0)
    (first, *_) = deliveries = await client.pop(MAIL, GROUP)
    assert sorted(delivery.text() for delivery in deliveries) == ["0", "1", "2"]
    assert first.deliver_at_ms == popmq_clock.now_ms()


async def test_the_list_of_delayed_messages_shows_what_they_contain(client: Any) -> None:
    await client.send(MAIL, popmq.Message("ab" + "€" * 100, delay=60.0, key="k", tag="red"))
    (message,) = (await client.messages.list_delayed(MAIL)).messages
    shown = message.preview
    assert (shown.keys, shown.tag, len(shown.body), shown.body_bytes) == (("k",), "red", 256, 302)
    assert shown.text() == "ab" + "€" * 84, "the last character was cut"


async def test_a_time_between_two_milliseconds_is_the_later_one(client: Any, popmq_clock: FakeClock) -> None:
    await client.send(MAIL, popmq.Message("x", deliver_at=popmq_clock.now() + 60.0001))
    (message,) = (await client.messages.list_delayed()).messages
    assert message.due_ms == popmq_clock.now_ms() + 60_001


@pytest.mark.slow
async def test_a_delay_of_no_name_and_a_normal_topic_refuse(client: Any) -> None:
    with pytest.raises(errors.InvalidField, match="'soon' is not a duration") as refused:
        await client.send(MAIL, popmq.Message("x", delay="soon"))
    assert "10m" in refused.value.action
    await client.topics.create("plain")
    with pytest.raises(errors.InvalidField, match="DELAY"):
        await client.send("plain", popmq.Message("x", delay=1.0))
    with pytest.raises(errors.InvalidField, match="both set"):
        await client.send(MAIL, popmq.Message("x", delay=1.0, deliver_at=2e9))


@pytest.mark.capability("reschedule")
async def test_a_delayed_message_is_moved_and_has_another_recall_handle(client: Any, advance: Any) -> None:
    await client.topics.create("moved", type="DELAY", queues=1)
    receipt = await client.send("moved", popmq.Message("x", key="k", delay="1h"))
    await client.pop("moved", GROUP)
    moved = await client.messages.reschedule("moved", receipt.recall_handle, delay="10m")
    (listed,) = (await client.messages.list_delayed("moved", key="k")).messages
    assert (listed.recall_handle, listed.due_ms) == (moved.recall_handle, moved.due_ms)
    assert (await client.messages.list_delayed("moved", message_id="nobody")).messages == ()
    with pytest.raises(popmq.errors.MessageNotFound):
        await client.messages.reschedule("moved", receipt.recall_handle, deliver_at=0)
    with pytest.raises(popmq.errors.InvalidField):
        await client.messages.reschedule("moved", moved.recall_handle)
    await advance(600.0)
    (delivery,) = await client.pop("moved", GROUP)
    assert delivery.text() == "x"
