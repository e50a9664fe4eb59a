"""Topics, groups and numbers through the client's words."""

from datetime import UTC, datetime
from typing import Any

import pytest

import popmq
from popmq import errors
from tests.sdk.conftest import GROUP, TOPIC


async def test_a_topic_is_made_changed_listed_and_deleted(client: Any) -> None:
    made = await client.topics.create("events", queues=2, retention=popmq.Retention(keep=3600.0, by_age=True))
    assert (made.name, made.type, made.queues) == ("events", "NORMAL", 2)
    assert made.retention == popmq.Retention(3600.0, by_age=True)
    changed = await client.topics.update("events", queues=4)
    assert (changed.queues, changed.retention) == (4, made.retention)
    assert await client.topics.get("events") == changed
    assert [topic.name for topic in await client.topics.list()] == ["events", TOPIC]
    await client.topics.delete("events")
    with pytest.raises(errors.TopicNotFound):
        await client.topics.get("events")


async def test_a_topic_of_no_type_is_refused(client: Any) -> None:
    with pytest.raises(errors.InvalidField, match="SQUARE"):
        await client.topics.create("odd", type="SQUARE")


async def test_a_lite_topic_is_made_by_its_first_message_and_popped_by_name(client: Any) -> None:
    made = await client.topics.create("chats", type="LITE", lite=popmq.LiteTopics(topics_max=2, ttl=600.0))
    assert (made.lite, made.queues) == (popmq.LiteTopics(2, 600.0), 1)
    assert (await client.topics.update("chats", lite=popmq.LiteTopics(2, 60.0))).lite == popmq.LiteTopics(2, 60.0)
    await client.groups.create("g")
    messages = [popmq.Message(f"{name} {number}", lite_topic=name) for number in (1, 2) for name in ("ann", "bob")]
    await client.send("chats", messages)
    with pytest.raises(errors.LiteTopicQuota):
        await client.send("chats", popmq.Message("x", lite_topic="zoe"))
    rows = await client.pop("chats", "g", lite_topics=["ann"])
    assert [(row.text(), row.lite_topic) for row in rows] == [("ann 1", "ann"), ("ann 2", "ann")]
    assert await client.pop("chats", "g", lite_topics=["ann"]) == []
    await client.ack(rows)
    (stats,) = (await client.broker.stats(topic="chats")).topics
    assert (stats.lite_topics, stats.messages) == (2, 4)
    seen = []
    async for delivery in client.consume("chats", "g", lite_topics=["ann", "bob"]):
        async with delivery:
            seen.append(delivery.text())
        if len(seen) == 2:
            break
    assert seen == ["bob 1", "bob 2"]


async def test_a_topic_has_a_type_a_quota_and_unique_ids(client: Any) -> None:
    quota = popmq.Quota(send_messages_per_s=100, send_bytes_per_s=1 << 20, message_bytes=1000, pop_messages_per_s=50)
    retention = popmq.Retention(max_bytes=1 << 30)
    made = await client.topics.create("letters", type="fifo", retention=retention, quota=quota, unique_ids=600.0)
    assert (made.type, made.queues, made.quota, made.unique_ids, made.retention) == ("FIFO", 8, quota, 600.0, retention)
    assert await client.topics.create("letters", 8, "FIFO", retention, quota, 600.0) == made
    changed = await client.topics.update("letters", quota=popmq.Quota(message_bytes=2000))
    assert (changed.quota, changed.unique_ids, changed.retention) == (popmq.Quota(message_bytes=2000), 600.0, retention)
    assert (await client.topics.update("letters", quota=popmq.Quota())).quota == popmq.Quota()
    assert (await client.topics.update("letters", unique_ids=0)).unique_ids == 0.0
    with pytest.raises(errors.InvalidField):
        await client.topics.update("letters", queues=16)
    assert (await client.topics.create("urgent", type="PRIORITY")).queues == 10


async def test_a_topic_has_a_permission_and_a_group_may_be_kept_from_consuming(client: Any) -> None:
    made = await client.topics.create("closed", permission="read_only")
    assert made.permission == "READ_ONLY"
    with pytest.raises(errors.Forbidden, match="no client may send") as refused:
        await client.send("closed", "x")
    assert refused.value.field == "topic"
    assert (await client.topics.update("closed", queues=9)).permission == "READ_ONLY"
    assert (await client.topics.update("closed", permission="READ_WRITE")).permission == "READ_WRITE"
    await client.send("closed", "x")
    assert (await client.groups.create("held", consume_enable=False)).consume_enable is False
    with pytest.raises(errors.Forbidden, match="may not read"):
        await client.pop("closed", "held")
    assert (await client.groups.update("held", max_attempts=3)).consume_enable is False
    assert (await client.groups.update("held", consume_enable=True)).consume_enable is True
    assert len(await client.pop("closed", "held")) == 1


@pytest.mark.capability("subscription_expiry")
async def test_a_group_says_how_long_an_idle_subscription_stays(client: Any) -> None:
    assert (await client.groups.create("plain")).subscription_expiry == 90 * 86_400.0
    made = await client.groups.create("short", subscription_expiry=7200.0)
    assert made.subscription_expiry == 7200.0
    assert (await client.groups.update("short", max_attempts=3)).subscription_expiry == 7200.0
    assert (await client.groups.update("short", subscription_expiry=0.0)).subscription_expiry == 0.0


@pytest.mark.slow
async def test_a_group_has_what_fifo_topics_ask_for(client: Any) -> None:
    made = await client.groups.create("audit", fifo=True, in_flight_max=10, stop_on_failure=True, lite_exclusive=True)
    assert (made.fifo, made.in_flight_max, made.stop_on_failure, made.lite_exclusive) == (True, 10, True, True)
    changed = await client.groups.update("audit", stop_on_failure=False)
    assert (changed.fifo, changed.in_flight_max, changed.stop_on_failure) == (True, 10, False)
    assert changed.lite_exclusive
    assert (await client.groups.get(GROUP)).in_flight_max == 10_000


@pytest.mark.slow
async def test_a_group_is_made_changed_listed_and_deleted(client: Any) -> None:
    since = datetime(2025, 1, 2, tzinfo=UTC)
    made = await client.groups.create("audit", max_attempts=3, backoff=[1, 2.5], invisible=30.0, start=since)
    assert (made.max_attempts, made.backoff, made.invisible, made.start) == (3, (1.0, 2.5), 30.0, since)
    changed = await client.groups.update("audit", max_attempts=5)
    assert (changed.max_attempts, changed.backoff) == (5, (1.0, 2.5))
    assert await client.groups.get("audit") == changed
    assert [group.name for group in await client.groups.list()] == ["audit", GROUP]
    await client.groups.delete("audit")
    with pytest.raises(errors.GroupNotFound):
        await client.groups.get("audit")


async def test_stats_count_what_the_group_has_to_do(client: Any, advance: Any) -> None:
    await client.send(TOPIC, [b"x"] * 10)
    popped = await client.pop(TOPIC, GROUP, max_messages=6)
    await client.ack(popped[:2])
    await client.release(popped[2], delay=60.0)
    await client.release(popped[3], delay=0.0)
    await client.reject(popped[4])
    await advance(2.0)
    (stats,) = (await client.broker.stats(group=GROUP)).groups
    assert (stats.ready, stats.in_flight, stats.retry, stats.backoff) == (4, 1, 1, 1)
    assert (stats.acked, stats.dead, stats.oldest_age) == (2, 1, 2.0)
    everything = await client.broker.stats(TOPIC)
    assert everything.topics[0].messages == 10
    assert sum(queue.max_offset for queue in everything.topics[0].queues) == 10
    assert everything.store.used_bytes > 0


async def test_browse_reads_by_position_and_leases_nothing(client: Any) -> None:
    receipts = await client.send(TOPIC, [b"a", b"b", b"c"])
    queue = receipts[0].queue
    page = await client.messages.browse(TOPIC, queue, offset=1, max_messages=1)
    assert [delivery.body for delivery in page.deliveries] == [b"b"]
    assert (page.next_offset, page.min_offset, page.max_offset) == (2, 0, 3)
    assert (await client.broker.stats(topic=TOPIC)).groups == ()


@pytest.mark.slow
async def test_long_lists_are_asked_for_page_by_page(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popmq._transport.call.PAGE_ROWS", 3)
    names = [f"topic{number}" for number in range(7)]
    for name in names:
        await client.topics.create(name)
        await client.groups.create(f"of-{name}")
        await client.owners.attach(GROUP, f"owner-of-{name}")
        await client.send(TOPIC, [name])
        await client.pop(TOPIC, GROUP, max_messages=1)
    assert [topic.name for topic in await client.topics.list()] == [TOPIC, *names]
    assert [group.name for group in await client.groups.list()] == [GROUP, *(f"of-{name}" for name in names)]
    assert [owner.owner for owner in await client.owners.list(GROUP)] == [f"owner-of-{name}" for name in names]
    stats = await client.broker.stats()
    assert [row.topic for row in stats.topics if not row.topic.startswith("%DLQ%")] == [TOPIC, *names]
    assert [(row.group, row.topic) for row in stats.groups] == [(GROUP, TOPIC)]
    assert stats.store.map_bytes
    leases = await client.leases.list(max_leases=5)
    assert (len({lease.checkpoint_id for lease in leases.leases}), leases.total) == (5, 7)
    assert len((await client.leases.list(max_leases=100)).leases) == 7
