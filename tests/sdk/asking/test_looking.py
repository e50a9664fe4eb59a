"""Single messages: looked up, peeked at, asked why, redriven; topics purged, offsets moved, modes switched."""

from datetime import UTC, datetime
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import FakeClock
from tests.sdk.conftest import GROUP, TOPIC


@pytest.fixture(autouse=True)
def _by_the_fake_clock(popmq_clock: FakeClock) -> None:
    """Events have the times that the test gives them."""


def texts(deliveries: Any) -> list[str]:
    return [delivery.text() for delivery in deliveries]


async def test_messages_are_looked_up_by_key_and_by_id_newest_first(
    client: Any, advance: Any, popmq_clock: FakeClock
) -> None:
    for number in range(3):
        await client.send(TOPIC, popmq.Message(str(number), key="same", message_id=f"m{number}"))
        await advance(1.0)
    found = await client.messages.look_up(TOPIC, key="same")
    assert (texts(found.deliveries), found.more) == (["2", "1", "0"], False)
    assert texts((await client.messages.look_up(TOPIC, message_id="m1")).deliveries) == ["1"]
    cut = await client.messages.look_up(TOPIC, key="same", max_messages=2)
    assert (texts(cut.deliveries), cut.more) == (["2", "1"], True)
    middle = popmq_clock.now() - 2.0
    since = await client.messages.look_up(TOPIC, key="same", since=datetime.fromtimestamp(middle, UTC))
    assert texts(since.deliveries) == ["2", "1"]
    assert texts((await client.messages.look_up(TOPIC, key="same", until=middle)).deliveries) == ["1", "0"]
    assert (await client.messages.look_up(TOPIC, key="other")).deliveries == ()
    with pytest.raises(errors.TopicNotFound):
        await client.messages.look_up("nowhere", key="same")


async def test_browse_reads_all_queues_in_order_and_searches_them(client: Any, popmq_clock: FakeClock) -> None:
    for number in range(5):
        await client.send(TOPIC, popmq.Message(str(number), key=f"key-{number}"))
    page = await client.messages.browse(TOPIC, order="newest", max_messages=3)
    assert (texts(page.deliveries), page.looked_at) == (["4", "3", "2"], 3)
    rest = await client.messages.browse(TOPIC, order="newest", page_token=page.next_page_token)
    assert (texts(rest.deliveries), rest.next_page_token) == (["1", "0"], "")
    assert texts((await client.messages.browse(TOPIC, order="oldest", search="key-3")).deliveries) == ["3"]
    assert texts((await client.messages.browse(TOPIC, order="oldest", since=popmq_clock.now() + 1)).deliveries) == []
    with pytest.raises(errors.InvalidField, match="'sideways' is not one of newest, oldest"):
        await client.messages.browse(TOPIC, order="sideways")


async def test_dead_letters_are_counted_by_reason_and_discarded(client: Any) -> None:
    await client.send(TOPIC, ["a", "b", "c"])
    for delivery in await client.pop(TOPIC, GROUP):
        await client.reject(delivery, "timeout" if delivery.text() == "c" else "bad\n  trace")
    assert [(each.reason, each.messages) for each in await client.dead_letters.reasons(GROUP)] == [
        ("bad", 2),
        ("timeout", 1),
    ]
    assert (await client.dead_letters.discard(GROUP, reason="bad")).discarded == 2
    assert (await client.dead_letters.redrive(GROUP, reason="timeout")).redriven == 1
    done = await client.dead_letters.discard(GROUP, message_ids=["nobody"])
    assert done.discarded == 0
    assert [(each.message_id, type(each.error)) for each in done.failures] == [("nobody", errors.MessageNotFound)]


async def test_peek_shows_what_the_next_pop_would_deliver_and_changes_nothing(client: Any) -> None:
    await client.send(TOPIC, ["a", "b"])
    (first,) = await client.pop(TOPIC, GROUP, max_messages=1)
    await client.release(first, delay=0.0)
    for _ in range(2):
        peeked = await client.messages.peek(TOPIC, GROUP)
        assert sorted((each.text(), each.attempt, each.handle) for each in peeked) == [("a", 2, ""), ("b", 1, "")]
    popped = await client.pop(TOPIC, GROUP)
    assert sorted((each.text(), each.attempt) for each in popped) == [("a", 2), ("b", 1)]
    with pytest.raises(RuntimeError, match="it was browsed"):
        peeked[0].ack()


async def test_why_tells_the_life_of_a_message_for_each_group(
    client: Any, advance: Any, popmq_clock: FakeClock
) -> None:
    await client.groups.create("audit")
    await client.pop(TOPIC, "audit")
    born = popmq_clock.now_ms()
    receipt = await client.send(TOPIC, popmq.Message("x", message_id="m1"))
    (delivery,) = await client.pop(TOPIC, GROUP, invisible=60.0)
    await client.extend(delivery, 120.0)
    await advance(1.0)
    await client.release(delivery, delay=0.0, reason="not today")
    (again,) = await client.pop(TOPIC, GROUP)
    await client.ack(again)
    (life,) = await client.messages.why("m1")
    assert (life.topic, life.queue, life.offset) == (TOPIC, receipt.queue, receipt.offset)
    assert (life.place, life.stored_ms) == ("stored", born)
    groups = {group.group: group for group in life.groups}
    assert {name: group.state for name, group in groups.items()} == {GROUP: "acked", "audit": "ready"}
    told = [event.what for event in groups[GROUP].events]
    assert [what for what in told if what in ("popped", "released", "acked")] == [
        "popped",
        "released",
        "popped",
        "acked",
    ]
    popped = next(event for event in groups[GROUP].events if event.what == "popped")
    assert (popped.client_id, popped.attempt, popped.time_ms) == (client.client_id, 1, born)
    renewed = next(event for event in groups[GROUP].events if event.what == "renewed")
    assert renewed.until_ms == born + 120_000
    released = next(event for event in groups[GROUP].events if event.what == "released")
    assert (released.reason, released.time_ms) == ("not today", born + 1000)
    assert [group.group for group in (await client.messages.why("m1", TOPIC, "audit"))[0].groups] == ["audit"]


async def test_why_tells_where_a_delayed_or_half_message_is(client: Any, popmq_clock: FakeClock) -> None:
    await client.topics.create("mail", type="DELAY")
    await client.send("mail", popmq.Message("x", message_id="later", delay=60.0))
    await client.send("mail", popmq.Message("x", message_id="half", transaction=True))
    (life,) = await client.messages.why("later")
    assert (life.place, life.due_ms) == ("delayed", popmq_clock.now_ms() + 60_000)
    assert (await client.messages.why("half"))[0].place == "half"
    with pytest.raises(errors.MessageNotFound):
        await client.messages.why("nobody's")


async def test_the_history_has_the_points_of_the_last_hour(client: Any, advance: Any, popmq_clock: FakeClock) -> None:
    assert (await client.broker.history()).points == ()
    began_ms = popmq_clock.now_ms()
    await client.send(TOPIC, ["a"] * 30)
    (first, *_) = await client.pop(TOPIC, GROUP, 10)
    await client.ack([first])
    await advance(30.0)
    history = await client.broker.history(TOPIC, GROUP)
    (point,) = history.points
    assert (history.step, history.now_ms, history.left_out) == (30, popmq_clock.now_ms(), False)
    assert (point.time_ms, point.sent_per_s, point.backlog, point.in_flight) == (began_ms + 30_000, 1, 29, 9)
    assert (point.oldest_age, point.used_bytes, point.leases_late) == (30, 0, 0)
    (whole,) = (await client.broker.history()).points
    assert whole.used_bytes == (await client.broker.stats()).store.used_bytes
    with pytest.raises(errors.TopicNotFound):
        await client.broker.history("nothing")
