"""Reading by queue and offset over the wire: what a pull consumer in any language sees."""

from typing import Any

import grpc
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.rules.delivery import sweep
from tests.wire.parked import Parked
from tests.wire.producer import Producer
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, codes, handles, refusal

RETRY = f"%RETRY%{GROUP}+{TOPIC}"


@pytest.fixture
def feed(stubs: Stubs) -> Stubs:
    """A topic of two queues that a group pulls; the first request goes to queue 0."""
    stubs.create_topic(queues=2)
    stubs.create_group()
    switch(stubs, pb.PULL)
    return stubs


def switch(stubs: Stubs, mode: Any, **fields: Any) -> pb.Subscription:
    request = pb.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=mode, **fields)
    answer: pb.SetConsumeModeResponse = stubs.admin.SetConsumeMode(request, timeout=CALL_S)
    return answer.subscription


def pull_request(offset: int = 0, **fields: Any) -> pb.PullRequest:
    return pb.PullRequest(**{"topic": TOPIC, "group": GROUP, "offset": offset, **fields})


def pull(stubs: Stubs, offset: int = 0, **fields: Any) -> pb.PullResponse:
    answer: pb.PullResponse = stubs.broker.Pull(pull_request(offset, **fields), timeout=CALL_S)
    return answer


def bodies(answer: pb.PullResponse) -> list[bytes]:
    return [delivery.message.body for delivery in answer.deliveries]


def commit(stubs: Stubs, offsets: dict[int, int], topic: str = TOPIC) -> None:
    stubs.broker.UpdateOffsets(pb.UpdateOffsetsRequest(topic=topic, group=GROUP, offsets=offsets), timeout=CALL_S)


def offsets(stubs: Stubs, topic: str = TOPIC, group: str = GROUP, **fields: Any) -> list[pb.QueueOffsets]:
    request = pb.QueryOffsetsRequest(topic=topic, group=group, **fields)
    return list(stubs.broker.QueryOffsets(request, timeout=CALL_S).queues)


def send_back(stubs: Stubs, *messages: pb.SentBack) -> list[pb.InvisibleTimeResult]:
    request = pb.SendBackRequest(topic=TOPIC, group=GROUP, messages=messages)
    return list(stubs.broker.SendBack(request, timeout=CALL_S).results)


def beat(stubs: Stubs, client: str, **fields: Any) -> int:
    request = pb.HeartbeatRequest(**{"client_id": client, "group": GROUP, "topics": [TOPIC], **fields})
    version: int = stubs.broker.Heartbeat(request, timeout=CALL_S).assignment_version
    return version


def assignment(stubs: Stubs, client: str, **fields: Any) -> pb.QueryAssignmentResponse:
    request = pb.QueryAssignmentRequest(**{"topic": TOPIC, "group": GROUP, "client_id": client, **fields})
    answer: pb.QueryAssignmentResponse = stubs.broker.QueryAssignment(request, timeout=CALL_S)
    return answer


# ── Pull ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_delivery_is_the_message_and_its_place_without_a_handle(feed: Stubs, clock: FakeClock) -> None:
    message = pb.Message(message_id="m", body=b"x" * 300, tag="t", keys=["k"], properties={"p": "q"}, born_ms=7)
    feed.broker.Send(pb.SendRequest(topic=TOPIC, messages=[message, message]), timeout=CALL_S)
    answer = pull(feed)
    assert (answer.status, answer.next_offset, answer.min_offset, answer.max_offset) == (pb.FOUND, 2, 0, 2)
    expected = pb.Delivery(message=message, attempt=1, queue=0, offset=1, stored_ms=clock.now_ms())
    assert answer.deliveries[1] == expected


@pytest.mark.parametrize(
    ("fields", "status", "next_offset"),
    [
        ({"queue": 1}, pb.NO_MESSAGE_IN_QUEUE, 0),
        ({"queue": 2}, pb.NO_MATCHED_LOGIC_QUEUE, 0),
        ({"offset": 2}, pb.OFFSET_OVERFLOW_ONE, 2),
        ({"offset": 9}, pb.OFFSET_OVERFLOW_BADLY, 2),
        ({"filter": pb.Filter(tag="nothing")}, pb.NO_MATCHED_MESSAGE, 2),
    ],
)
def test_a_pull_without_messages_returns_a_status_and_not_an_error(
    feed: Stubs, fields: dict[str, Any], status: int, next_offset: int
) -> None:
    feed.send(b"a", b"b")
    answer = pull(feed, **{"offset": 0, **fields})
    assert (answer.status, list(answer.deliveries), answer.next_offset) == (status, [], next_offset)


# ── Offsets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_offsets_are_committed_shown_and_carried_by_pulls(feed: Stubs, clock: FakeClock) -> None:
    feed.send(b"a", b"b", b"c")
    clock.advance(1_000)
    feed.send(b"d")
    commit(feed, {0: 1, 1: 1})
    pull(feed, 3, commit_offset=2)
    first, second = offsets(feed, timestamp_ms=clock.now_ms())
    left, created_ms = first.bytes_behind, clock.now_ms() - 1_000
    numbers: dict[str, int] = {"least_committed": 2, "read_ms": clock.now_ms(), "bytes_behind": left}
    numbers |= {"topic_created_ms": created_ms}
    assert first == pb.QueueOffsets(queue=0, min_offset=0, max_offset=3, committed=2, at_timestamp=3, **numbers)
    numbers = {"least_committed": 1, "read_ms": 0, "topic_created_ms": created_ms}
    assert second == pb.QueueOffsets(queue=1, min_offset=0, max_offset=1, committed=1, at_timestamp=0, **numbers)
    assert left == feed.stats().bytes_behind > 0
    assert [row.committed for row in offsets(feed, group="")] == [-1, -1]
    stats = feed.stats()
    assert (stats.mode, stats.ready, stats.acked, stats.in_flight) == (pb.PULL, 1, 3, 0)
    assert stats.acked_per_s == pytest.approx(3)


@pytest.mark.slow
def test_a_reset_answers_the_next_offset_of_every_queue(feed: Stubs) -> None:
    feed.send(b"a", b"b", b"c")
    commit(feed, {0: 3})
    send_back(feed, pb.SentBack(offset=1, delay_ms=0))
    request = pb.ResetOffsetsRequest(topic=TOPIC, group=GROUP, offsets={0: 1})
    assert dict(feed.admin.ResetOffsets(request, timeout=CALL_S).offsets) == {0: 1, 1: 0}
    assert feed.stats().retry == 0
    latest = pb.StartPosition(**{"from": pb.LATEST})
    request = pb.ResetOffsetsRequest(topic=TOPIC, group=GROUP, to=latest)
    assert dict(feed.admin.ResetOffsets(request, timeout=CALL_S).offsets) == {0: 3, 1: 0}
    feed.create_group("copy")
    copy = pb.CloneOffsetsRequest(topic=TOPIC, from_group=GROUP, group="copy")
    assert dict(feed.admin.CloneOffsets(copy, timeout=CALL_S).offsets) == {0: 3, 1: 0}


@pytest.mark.promise("ack")
def test_a_reset_of_much_is_answered_when_nothing_is_left(shop: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SWEEP_MAX", 2)
    shop.send(*(str(number).encode() for number in range(20)))
    taken = [handle for _ in range(20) for handle in handles(shop.pop(max_messages=1))]
    for handle in taken[:10]:
        shop.change(handle, release=pb.Release(delay_ms=0))
    request = pb.ResetOffsetsRequest(topic=TOPIC, group=GROUP, to=pb.StartPosition())
    shop.admin.ResetOffsets(request, timeout=CALL_S)
    stats = shop.stats()
    assert (stats.ready, stats.in_flight, stats.retry) == (20, 0, 0)
    assert shop.ack(*taken) == ["HANDLE_LAPSED"] * 20


# ── Send-back ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_sent_back_is_pulled_from_the_retry_topic(feed: Stubs, parked: Parked, clock: FakeClock) -> None:
    feed.send(b"a", b"b")
    call = feed.broker.Pull.future(pull_request(topic=RETRY, wait_ms=60_000), timeout=CALL_S)
    parked.wait_for(1)
    (result,) = send_back(feed, pb.SentBack(offset=1, delay_ms=30_000, reason="later"))
    assert (result.visible_ms, result.dead_lettered) == (clock.now_ms() + 30_000, False)
    clock.advance(30_000)
    (delivery,) = call.result().deliveries
    assert (delivery.message.body, delivery.attempt, delivery.queue) == (b"b", 2, 0)
    (row,) = offsets(feed, RETRY)
    assert row.committed == row.min_offset == delivery.offset
    (result,) = send_back(feed, pb.SentBack(offset=delivery.offset, retry=True, reject=True, reason="broken"))
    assert (result.visible_ms, result.dead_lettered) == (0, True)
    (letter,) = pull(feed, topic=f"%DLQ%{GROUP}", group="").deliveries
    assert (letter.message.dead_letter.reason, letter.message.dead_letter.attempts) == ("broken", 2)


@pytest.mark.promise("statistics")
def test_bad_entries_are_refused_one_by_one_with_their_places(feed: Stubs) -> None:
    feed.send(b"a")
    results = send_back(
        feed,
        pb.SentBack(offset=-1),
        pb.SentBack(delay_ms=43_200_001),
        pb.SentBack(delay_ms=-1),
        pb.SentBack(reason="é" * 2049),
        pb.SentBack(offset=1),
        pb.SentBack(queue=2),
        pb.SentBack(offset=1, retry=True),
        pb.SentBack(delay_ms=0, reason="r" * 4096),
    )
    assert codes(results) == [*["INVALID_FIELD"] * 4, "MESSAGE_NOT_FOUND", "INVALID_FIELD", "MESSAGE_NOT_FOUND", ""]
    assert [result.error.field for result in results[:-1]] == [
        f"messages[{place}].{field}"
        for place, field in enumerate(("offset", "delay_ms", "delay_ms", "reason", "offset", "queue", "offset"))
    ]
    assert feed.stats().retry == 1


# ── The mode, assignments, sessions ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.capability("filters")
def test_a_switch_returns_the_new_mode_and_moves_leased_messages(shop: Stubs) -> None:
    shop.send(b"a", b"b")
    (handle, _) = handles(shop.pop())
    assert switch(shop, pb.PULL, share_number=2) == pb.Subscription(
        topic=TOPIC, mode=pb.PULL, share_number=2, filter=pb.Filter(tag="*")
    )
    assert shop.ack(handle) == ["HANDLE_LAPSED"]
    assert sorted(bodies(pull(shop, topic=RETRY))) == [b"a", b"b"]
    refused = refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP))
    assert (refused.code, refused.status) == ("WRONG_CONSUME_MODE", grpc.StatusCode.FAILED_PRECONDITION)
    switch(shop, pb.POP)
    assert [delivery.attempt for delivery in shop.pop().deliveries] == [2, 2]


def test_an_assignment_follows_the_strategy_that_it_names(stubs: Stubs) -> None:
    stubs.create_topic(queues=8)
    stubs.create_group()
    switch(stubs, pb.PULL)
    for client in "abc":
        beat(stubs, client)
    answers = [assignment(stubs, client, strategy="CIRCLE") for client in "abc"]
    assert [list(answer.queues) for answer in answers] == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_the_retry_topic_is_read_by_one_of_the_clients_that_read_the_topic(feed: Stubs) -> None:
    for client in "ab":
        beat(feed, client)
    assert [list(assignment(feed, client, topic=RETRY).queues) for client in "ab"] == [[0], []]


@pytest.mark.slow
def test_the_share_number_of_the_topic_wins_over_the_groups(stubs: Stubs) -> None:
    stubs.create_topic(queues=8)
    stubs.create_group(share_number=3)
    for client in "abcd":
        beat(stubs, client)
    assert assignment(stubs, "a").all
    switch(stubs, pb.POP, share_number=1)
    assert list(assignment(stubs, "a").queues) == [0, 1, 2, 3]


def test_sessions_of_all_groups_and_streams_are_listed_together(feed: Stubs, clock: FakeClock) -> None:
    feed.create_group("other")
    feed.create_topic("later", type=pb.TRANSACTION)
    beat(feed, "a")
    beat(feed, "b", group="other", topics=[])
    with Producer(feed, "later", client_id="p"):
        rows = feed.admin.ListSessions(pb.ListSessionsRequest(), timeout=CALL_S).sessions
        pages, token = list[pb.ClientSession](), ""
        for _ in rows:
            asked = pb.ListSessionsRequest(page_size=1, page_token=token)
            page = feed.admin.ListSessions(asked, timeout=CALL_S)
            pages, token = [*pages, *page.sessions], page.next_page_token
        assert (pages, token) == (list(rows), "")
    assert [(row.client_id, row.group, list(row.topics), row.stream) for row in rows] == [
        ("a", GROUP, [TOPIC], False),
        ("b", "other", [], False),
        ("p", "", ["later"], True),
    ]
    clock.advance(120_000)
    assert not feed.admin.ListSessions(pb.ListSessionsRequest(group=GROUP), timeout=CALL_S).sessions
