"""Delayed messages on the wire: sent, listed, recalled, and there in their time."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.values.message import TIME_MS_MAX
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, codes

LATER = "later"
SECOND, YEAR = 1_000, 365 * 86_400_000


@pytest.fixture
def later(shop: Stubs) -> Stubs:
    """The stubs of a broker that has a DELAY topic of one queue as well; the group reads it."""
    shop.create_topic(LATER, type=pb.DELAY, queues=1)
    shop.pop(LATER)
    return shop


def send(stubs: Stubs, *messages: pb.Message, topic: str = LATER, **fields: Any) -> list[pb.SendResult]:
    request = pb.SendRequest(topic=topic, messages=messages, **fields)
    answer: pb.SendResponse = stubs.broker.Send(request, timeout=CALL_S)
    return list(answer.results)


def message(text: bytes, **fields: Any) -> pb.Message:
    return pb.Message(message_id=text.decode(), body=text, **fields)


def listed(stubs: Stubs, **asked: Any) -> pb.ListDelayedResponse:
    answer: pb.ListDelayedResponse = stubs.admin.ListDelayed(pb.ListDelayedRequest(**asked), timeout=CALL_S)
    return answer


def test_the_list_shows_what_delayed_messages_contain(later: Stubs) -> None:
    body = b"x" * 300
    send(
        later,
        pb.Message(message_id="a", body=body, keys=["k1", "k2"], tag="red", delay_ms=SECOND, properties={"p": "v"}),
        pb.Message(message_id="b", body=b"b", delay_ms=2 * SECOND),
    )
    assert [row.preview for row in listed(later, topic=LATER).messages] == [
        pb.MessagePreview(keys=["k1", "k2"], tag="red", body=body[:256], body_bytes=300),
        pb.MessagePreview(body=b"b", body_bytes=1),
    ]
    assert all(row.HasField("preview") for row in listed(later).messages)


def test_any_time_to_the_year_9999_is_taken_and_lives_through_a_restart(folder: Any, clock: FakeClock) -> None:
    times = [TIME_MS_MAX, TIME_MS_MAX - 1, clock.now_ms() + 100 * YEAR]
    for restarted in (False, True):
        with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
            stubs.create_topic(LATER, type=pb.DELAY)
            if not restarted:
                send(stubs, *(message(str(at).encode(), deliver_at_ms=at) for at in times))
            assert [row.due_ms for row in listed(stubs).messages] == sorted(times)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"deliver_at_ms": -1}, "deliver_at_ms"),
        ({"deliver_at_ms": TIME_MS_MAX + 1}, "deliver_at_ms"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"delay_ms": 100 * YEAR + 1}, "delay_ms"),
        ({"delay_ms": 1, "deliver_at_ms": 1}, "delay_ms"),
    ],
)
def test_a_time_out_of_range_is_refused_and_its_neighbours_are_kept(
    later: Stubs, fields: dict[str, int], path: str
) -> None:
    results = send(later, message(b"a", delay_ms=SECOND), message(b"b", **fields))
    assert codes(results) == ["", "INVALID_FIELD"]
    assert results[1].error.field == f"messages[1].{path}"
    assert listed(later).total == 1


@pytest.mark.parametrize("fields", [{"deliver_at_ms": TIME_MS_MAX}, {"delay_ms": 1}, {"transaction": True}])
def test_a_normal_topic_takes_no_delayed_and_no_half_messages(shop: Stubs, fields: dict[str, Any]) -> None:
    results = send(shop, message(b"a", **fields), message(b"b"), topic=TOPIC)
    assert codes(results) == ["INVALID_FIELD", ""]
    assert results[0].error.field == f"messages[0].{next(iter(fields))}"


def test_lists_are_soonest_first_by_topic_or_of_all(later: Stubs, clock: FakeClock) -> None:
    later.create_topic("other", type=pb.FIFO)
    now = clock.now_ms()
    send(later, message(b"c", delay_ms=3), message(b"a", deliver_at_ms=now + 1))
    (other,) = send(later, message(b"b", delay_ms=2, message_group="g"), topic="other")
    answer = listed(later)
    assert [(row.topic, row.message_id, row.due_ms - now) for row in answer.messages] == [
        (LATER, "a", 1),
        ("other", "b", 2),
        (LATER, "c", 3),
    ]
    assert (answer.total, answer.messages[1].recall_handle) == (3, other.recall_handle)
    assert {row.stored_ms for row in answer.messages} == {now}
    assert [row.message_id for row in listed(later, until_ms=now + 3).messages] == ["a", "b"]
    assert [row.message_id for row in listed(later, topic=LATER, max_messages=1).messages] == ["a"]
    assert listed(later, topic=LATER, max_messages=1).total == 2


@pytest.mark.promise("statistics")
def test_the_numbers_tell_what_is_delayed_and_half(later: Stubs) -> None:
    send(later, message(b"a", delay_ms=SECOND), message(b"b", transaction=True), message(b"c", transaction=True))
    stats = later.admin.GetStats(pb.GetStatsRequest(topic=LATER, group=GROUP), timeout=CALL_S)
    assert (stats.topics[0].delayed, stats.topics[0].half, stats.topics[0].messages) == (1, 2, 0)
    assert (stats.groups[0].delayed, stats.groups[0].ready) == (1, 0)


def test_a_list_has_the_whole_messages_if_it_is_asked_for_them_and_its_pages_are_bounded(later: Stubs) -> None:
    given = [
        pb.Message(message_id=f"m{number}", body=b"x" * 1_000_000, delay_ms=YEAR + number, properties={"p": "1"})
        for number in range(7)
    ]
    send(later, *given)
    pages, token = list[list[pb.DelayedMessage]](), ""
    while token or not pages:
        page = listed(later, topic=LATER, whole=True, page_token=token)
        pages.append(list(page.messages))
        token = page.next_page_token
    assert [row.message for page in pages for row in page] == given
    assert [len(page) for page in pages] == [4, 3], "a page ends when it has 3 MiB"
    assert not any(row.HasField("message") for row in listed(later, topic=LATER).messages)
