"""The calls of reading by queue and offset, as both clients have them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from popmq import Message, errors
from tests.sdk.conftest import GROUP, TOPIC
from tests.sdk.pulling.pulls import committed

pytestmark = pytest.mark.usefixtures("popmq_clock")

RETRIES = f"%RETRY%{GROUP}+{TOPIC}"


@pytest.fixture
async def pulled(client: Any) -> Any:
    """The client, with a topic of one queue that its group pulls."""
    await client.topics.delete(TOPIC)
    await client.topics.create(TOPIC, queues=1)
    await client.groups.set_consume_mode(TOPIC, GROUP, "PULL")
    return client


@pytest.mark.slow
async def test_a_pull_reads_from_an_offset_and_says_where_to_go_on(pulled: Any) -> None:
    await pulled.send(TOPIC, [f"{number}" for number in range(5)])
    page = await pulled.pull(TOPIC, GROUP, 0, 1, max_messages=3)
    assert [(each.text(), each.offset, each.attempt) for each in page.deliveries] == [
        ("1", 1, 1),
        ("2", 2, 1),
        ("3", 3, 1),
    ]
    assert (page.status, page.next_offset, page.min_offset, page.max_offset) == ("FOUND", 4, 0, 5)


@pytest.mark.parametrize("wanted", [{"tag": "eu"}, {"sql": "TAGS = 'eu'"}])
async def test_a_pull_may_filter(pulled: Any, wanted: dict[str, str]) -> None:
    await pulled.send(TOPIC, "x")
    page = await pulled.pull(TOPIC, "", 0, 0, **wanted)
    assert (page.status, page.next_offset) == ("NO_MATCHED_MESSAGE", 1)


async def test_offsets_are_committed_forward_and_back_and_on_the_way_of_a_pull(pulled: Any) -> None:
    await pulled.send(TOPIC, ["a", "b", "c"])
    await pulled.offsets.update(TOPIC, GROUP, {0: 3})
    assert await committed(pulled) == {0: 3}
    await pulled.offsets.update(TOPIC, GROUP, {0: 1})
    assert await committed(pulled) == {0: 1}
    await pulled.pull(TOPIC, GROUP, 0, 2, commit_offset=2)
    assert await committed(pulled) == {0: 2}
    with pytest.raises(errors.InvalidField):
        await pulled.offsets.update(TOPIC, GROUP, {0: 4})


async def test_offsets_of_a_topic_that_was_deleted_and_created_again_are_refused(pulled: Any) -> None:
    await pulled.send(TOPIC, ["a", "b"])
    page = await pulled.pull(TOPIC, GROUP, 0, 0)
    columns = await pulled.pull_columns(TOPIC, 0, 0)
    (queue,) = await pulled.offsets.query(TOPIC, "")
    known = page.topic_created_ms
    assert {columns.topic_created_ms, queue.topic_created_ms, (await pulled.topics.get(TOPIC)).created_ms} == {known}
    await pulled.pull(TOPIC, GROUP, 0, 1, topic_created_ms=known)
    await pulled.topics.delete(TOPIC)
    await pulled.topics.create(TOPIC, queues=1)
    for call in (
        pulled.pull(TOPIC, GROUP, 0, 1, topic_created_ms=known),
        pulled.pull_columns(TOPIC, 0, 1, topic_created_ms=known),
        pulled.offsets.update(TOPIC, GROUP, {0: 0}, topic_created_ms=known),
    ):
        with pytest.raises(errors.TopicNotFound, match="deleted and created again") as refused:
            await call
        assert refused.value.field == "topic_created_ms"


async def test_messages_that_are_sent_back_come_again_through_the_retry_topic(pulled: Any, advance: Any) -> None:
    await pulled.send(TOPIC, ["a", "b"])
    page = await pulled.pull(TOPIC, GROUP, 0, 0)
    first, second = await pulled.send_back(page.deliveries, delay=3.0, reason="not now")
    assert (first.dead_lettered, first.visible_ms) == (False, second.visible_ms)
    await pulled.offsets.update(TOPIC, GROUP, {0: 2})
    await advance(3.0)
    retries = await pulled.pull(RETRIES, GROUP, 0, 0)
    assert [(each.text(), each.attempt) for each in retries.deliveries] == [("a", 2), ("b", 2)]
    await pulled.send_back(retries.deliveries[0], reject=True, reason="it is bad")
    await pulled.offsets.update(RETRIES, GROUP, {0: retries.next_offset})
    assert (await pulled.pull(RETRIES, GROUP, 0, 0)).deliveries == ()
    (dead,) = (await pulled.messages.browse(f"%DLQ%{GROUP}")).deliveries
    assert (dead.text(), dead.dead_letter.reason, dead.dead_letter.attempts) == ("a", "it is bad", 2)


async def test_a_maximum_of_attempts_may_be_named_for_one_send_back(pulled: Any) -> None:
    await pulled.send(TOPIC, ["a"])
    page = await pulled.pull(TOPIC, GROUP, 0, 0)
    (result,) = await pulled.send_back(page.deliveries[0], max_attempts=1)
    assert result.dead_lettered
    (dead,) = (await pulled.messages.browse(f"%DLQ%{GROUP}")).deliveries
    assert (dead.dead_letter.attempts, dead.dead_letter.last_client) == (1, pulled.client_id)


async def test_a_reset_takes_a_time_and_refuses_numbers_and_other_values(pulled: Any, advance: Any) -> None:
    await pulled.send(TOPIC, ["before"])
    await advance(100.0)
    await pulled.send(TOPIC, ["since"])
    start = datetime.fromtimestamp(1.7e9, UTC)
    assert await pulled.offsets.reset(TOPIC, GROUP, start) == {0: 0}
    assert await pulled.offsets.reset(TOPIC, GROUP, start + timedelta(seconds=50)) == {0: 1}
    for wrong in (None, True, 0, 1.7e9, float("nan"), float("inf"), b"earliest", "yesterday"):
        with pytest.raises(errors.InvalidField):
            await pulled.offsets.reset(TOPIC, GROUP, wrong)
    assert await committed(pulled) == {0: 1}


async def test_a_message_that_cannot_be_sent_back_is_reported_and_the_rest_is_sent_back(pulled: Any) -> None:
    await pulled.send(TOPIC, ["a"])
    (there,) = (await pulled.pull(TOPIC, GROUP, 0, 0)).deliveries
    await pulled.send_back(there, delay=0.0)
    (entry,) = (await pulled.pull(RETRIES, GROUP, 0, 0)).deliveries
    with pytest.raises(errors.PartlyRefused) as refused:
        await pulled.send_back([entry, entry, there])
    assert [type(result) for result in refused.value.errors.values()] == [errors.MessageNotFound]


@pytest.mark.slow
async def test_columns_of_a_range_end_at_its_end_whatever_the_filter_passes_over(pulled: Any) -> None:
    await pulled.send(TOPIC, [Message(f"{number}", tag="ab"[number % 2]) for number in range(10)])
    page = await pulled.pull_columns(TOPIC, 0, 2, 7)
    assert [*page.columns.offset] == [2, 3, 4, 5, 6]
    assert [bytes(body) for body in page.columns.body] == [b"2", b"3", b"4", b"5", b"6"]
    assert (page.status, page.next_offset, page.max_offset) == ("FOUND", 7, 10)
    page = await pulled.pull_columns(TOPIC, 0, 2, 7, tag="b")
    assert ([*page.columns.offset], page.next_offset) == ([3, 5], 7)
    page = await pulled.pull_columns(TOPIC, 0, 2, 3, sql="TAGS = 'b'")
    assert ([*page.columns.offset], page.status, page.next_offset) == ([], "NO_MATCHED_MESSAGE", 3)
    page = await pulled.pull_columns(TOPIC, 0, 8)
    assert ([*page.columns.offset], page.next_offset) == ([8, 9], 10)


@pytest.mark.slow
async def test_only_the_columns_that_are_asked_for_come_and_the_offsets(pulled: Any) -> None:
    await pulled.send(TOPIC, [Message("x" * 1000, key="k", tag="t", properties={"a": "b"})] * 3)
    rows = (await pulled.pull_columns(TOPIC, 0, 0, 3, columns=("key", "properties"))).columns
    assert (len(rows), [*rows.offset]) == (3, [0, 1, 2])
    assert ([*rows.key], rows.properties[2]) == (["k"] * 3, {"a": "b"})
    assert [*rows.body, *rows.message_id, *rows.tag, *rows.born_ms, *rows.stored_ms] == []


async def test_columns_of_the_retry_topic_end_at_their_end(pulled: Any) -> None:
    await pulled.send(TOPIC, ["one", "two", "three"])
    page = await pulled.pull(TOPIC, GROUP, 0, 0)
    await pulled.send_back(page.deliveries, delay=0)
    entries = (await pulled.pull_columns(RETRIES, 0, 0)).columns.offset
    page = await pulled.pull_columns(RETRIES, 0, 0, entries[2])
    assert [bytes(body) for body in page.columns.body] == [b"one", b"two"]
