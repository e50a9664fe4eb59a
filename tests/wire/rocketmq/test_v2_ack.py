"""apache.rocketmq.v2: what a client does with its deliveries: acks, other times, dead letters; and repeats of them."""

from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols.rocketmq import remembered
from popmq_server.values.handles import make_handle
from tests.wire.rocketmq.v2 import V2, acked, change, changed, dead_letter, handle, message, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
FORGED = make_handle(1_000_000, 0, 1)


def sent(v2: V2, *bodies: bytes, **asked: Any) -> list[pb.Message]:
    """Messages that were sent and received."""
    v2.send(*(message(body, message_id=body.decode()) for body in bodies))
    return v2.receive(**asked).messages


def holding(text: str) -> pb.Message:
    """A message with this receipt handle, real or forged."""
    made = message()
    made.system_properties.receipt_handle = text
    return made


def dead_letters(shop: Stubs) -> list[native.Message]:
    request = native.BrowseRequest(topic=f"%DLQ%{GROUP}", max_messages=100)
    return [row.message for row in shop.admin.Browse(request, timeout=CALL_S).deliveries]


# ── AckMessage ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_entry_is_answered_in_its_place_with_what_it_said(shop: Stubs, v2: V2) -> None:
    a, b = sent(v2, b"a", b"b")
    answer = v2.ack(a, holding(FORGED), b)
    assert answer.status.code == pb.MULTIPLE_RESULTS
    assert [(entry.message_id, entry.receipt_handle, entry.status.code) for entry in answer.entries] == [
        ("a", handle(a), pb.OK),
        ("01AB", FORGED, pb.INVALID_RECEIPT_HANDLE),
        ("b", handle(b), pb.OK),
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_entries_that_fared_alike_are_answered_by_one_code(shop: Stubs, v2: V2, count: int) -> None:
    """Clients take MULTIPLE_RESULTS for success."""
    assert acked(v2, *[holding(FORGED)] * count) == "INVALID_RECEIPT_HANDLE"
    assert acked(v2, *sent(v2, b"a", b"b")[:count]) == "OK"


@pytest.mark.promise("statistics")
def test_an_ack_again_is_ok_in_another_request_and_in_the_same(shop: Stubs, v2: V2) -> None:
    """The client lost the answer to the first: it did nothing wrong, and nothing is to be done."""
    a, b = sent(v2, b"a", b"b")
    assert acked(v2, a) == "OK"
    assert acked(v2, a) == "OK"
    assert acked(v2, b, b) == "OK"
    assert shop.stats().acked == 2


def test_an_ack_again_by_another_group_is_not(shop: Stubs, v2: V2) -> None:
    shop.create_group("other")
    (a,) = sent(v2, b"a")
    assert acked(v2, a, group="other") == "INVALID_RECEIPT_HANDLE"
    acked(v2, a)
    assert acked(v2, a, group="other") == "INVALID_RECEIPT_HANDLE"


@pytest.mark.promise("ack")
@pytest.mark.slow
def test_a_repeated_v2_ack_that_is_no_longer_remembered_is_answered_like_a_late_one(
    shop: Stubs, v2: V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "FINISHED_MAX", 2)
    found = sent(v2, b"a", b"b", b"c")
    for one in found:
        acked(v2, one)
    assert [acked(v2, one) for one in found] == ["INVALID_RECEIPT_HANDLE", "OK", "OK"]


@pytest.mark.parametrize("text", ["", "x", "A" * 28, "ä" * 28, FORGED])
def test_a_forged_or_malformed_receipt_handle_is_invalid(shop: Stubs, v2: V2, text: str) -> None:
    assert acked(v2, holding(text)) == "INVALID_RECEIPT_HANDLE"
    assert changed(v2, holding(text), SECOND) == "INVALID_RECEIPT_HANDLE"
    assert dead_letter(v2, holding(text)) == "INVALID_RECEIPT_HANDLE"


NAMES = [
    ({"topic": resource("")}, "ILLEGAL_TOPIC"),
    ({"topic": resource("a b")}, "ILLEGAL_TOPIC"),
    ({"group": resource(" ")}, "ILLEGAL_CONSUMER_GROUP"),
    ({"topic": resource("unknown"), "receipt_handle": FORGED}, "TOPIC_NOT_FOUND"),
]


@pytest.mark.parametrize(("fields", "expected"), NAMES)
def test_a_wrong_name_or_handle_is_refused_alike_by_ack_change_and_dead_letter(
    shop: Stubs, v2: V2, fields: dict[str, Any], expected: str
) -> None:
    (a,) = sent(v2, b"a")
    text = fields.pop("receipt_handle", handle(a))
    names = {"topic": resource(TOPIC), "group": resource(GROUP)} | fields
    entries = [rpc.AckMessageEntry(message_id="a", receipt_handle=text)]
    assert v2.code("AckMessage", entries=entries, **names) == expected
    assert changed(v2, holding(text), SECOND, **fields) == expected
    assert dead_letter(v2, holding(text), **fields) == expected
    assert acked(v2, a) == "OK"


@pytest.mark.slow
def test_the_handles_of_a_group_that_was_deleted_are_over(shop: Stubs, v2: V2) -> None:
    (a,) = sent(v2, b"a")
    shop.admin.DeleteGroup(native.DeleteGroupRequest(name=GROUP), timeout=CALL_S)
    assert (acked(v2, a), changed(v2, a, SECOND), dead_letter(v2, a)) == (*["INVALID_RECEIPT_HANDLE"] * 2, "OK")


def test_an_ack_has_entries_and_not_too_many(shop: Stubs, v2: V2) -> None:
    assert acked(v2) == "BAD_REQUEST"
    assert acked(v2, *[holding(FORGED)] * 4097) == "BAD_REQUEST"


def test_v2_settling_calls_need_a_client_id(shop: Stubs, v2: V2) -> None:
    (a,) = sent(v2, b"a")
    with V2(v2.endpoint, client_id="") as nobody:
        assert acked(nobody, a) == dead_letter(nobody, a) == changed(nobody, a, 0) == "CLIENT_ID_REQUIRED"
    assert acked(v2, a) == "OK"


# ── ChangeInvisibleDuration ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_changed_invisible_time_counts_from_now_and_keeps_the_handle(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    (a,) = sent(v2, b"a", invisible_s=10)
    answer = change(v2, a, MINUTE)
    assert (answer.status.code, answer.receipt_handle) == (pb.OK, handle(a))
    clock.advance(MINUTE - 1)
    assert not v2.receive().messages
    assert changed(v2, a, 5 * SECOND) == "OK"
    clock.advance(5 * SECOND - 1)
    assert acked(v2, a) == "OK"


def test_a_nack_is_a_time_after_which_the_message_comes_again_counted(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    (a,) = sent(v2, b"a", auto_renew=True)
    assert changed(v2, a, 5 * SECOND) == "OK"
    v2.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))
    clock.advance(5 * SECOND)
    (again,) = v2.receive().messages
    assert again.system_properties.delivery_attempt == 2
    assert acked(v2, a) == "INVALID_RECEIPT_HANDLE"


@pytest.mark.parametrize("ms", [0, 1, 5])
def test_a_push_consumer_of_node_that_says_no_delay_means_the_groups(
    stubs: Stubs, v2: V2, clock: FakeClock, ms: int
) -> None:
    """It takes seconds for milliseconds, and a table for nothing: it would get the message again at once, for ever."""
    stubs.create_topic(queues=1)
    stubs.create_group(backoff=native.Backoff(delays_ms=[30_000]))
    with V2(v2.endpoint, language="HTTP") as node:
        (a,) = sent(node, b"a", auto_renew=True)
        assert changed(node, a, ms) == "OK"
        clock.advance(30 * SECOND - 1)
        assert not node.receive().messages
        clock.advance(1)
        (again,) = node.receive(auto_renew=True).messages
        assert changed(node, again, 20 * SECOND) == "OK"  # a delay is taken as it is
        clock.advance(20 * SECOND)
        assert len(node.receive().messages) == 1


@pytest.mark.promise("redelivery")
def test_a_simple_consumer_of_node_that_says_now_means_now(shop: Stubs, v2: V2) -> None:
    with V2(v2.endpoint, client_id="simple", language="HTTP") as node:
        (a,) = sent(node, b"a")
        changed(node, a, 0)
        assert len(node.receive().messages) == 1


@pytest.mark.parametrize(
    ("ms", "expected"), [(-1, "ILLEGAL_INVISIBLE_TIME"), (12 * HOUR + 1, "ILLEGAL_INVISIBLE_TIME")]
)
def test_a_time_is_0_to_12_hours(shop: Stubs, v2: V2, ms: int, expected: str) -> None:
    (a,) = sent(v2, b"a")
    answer = change(v2, a, ms)
    assert (pb.Code.Name(answer.status.code), answer.receipt_handle) == (expected, handle(a))
    assert changed(v2, a, 12 * HOUR) == "OK"


def test_a_refused_change_of_the_invisible_time_still_returns_the_handle(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    """Some clients go on with the handle of the answer, also of one that says no."""
    (a,) = sent(v2, b"a", invisible_s=10)
    clock.advance(10 * SECOND)
    for answer in (
        change(v2, a, SECOND),
        change(v2, a, -1),
        change(v2, a, SECOND, group=resource("unknown")),
        change(v2, a, SECOND, topic=resource("")),
    ):
        assert answer.status.code != pb.OK
        assert answer.receipt_handle == handle(a)
    with V2(v2.endpoint, client_id="") as nobody:
        assert change(nobody, a, SECOND).receipt_handle == handle(a)


# ── ForwardMessageToDeadLetterQueue ──────────────────────────────────────────────────────────────────────────────────


def test_a_message_that_a_client_gave_up_is_a_dead_letter_with_the_reason(shop: Stubs, v2: V2) -> None:
    (a,) = sent(v2, b"a")
    assert dead_letter(v2, a) == "OK"
    (letter,) = dead_letters(shop)
    assert letter.body == b"a"
    assert letter.dead_letter.reason == "the client gave up after 3 of 3 attempts"


@pytest.mark.promise("ack")
def test_giving_up_and_acking_a_message_may_be_repeated_and_mixed(shop: Stubs, v2: V2) -> None:
    """One client repeats until it hears OK."""
    a, b = sent(v2, b"a", b"b")
    assert [dead_letter(v2, a), dead_letter(v2, a), acked(v2, a)] == ["OK"] * 3
    assert [acked(v2, b), dead_letter(v2, b)] == ["OK"] * 2
    assert len(dead_letters(shop)) == 1


def test_giving_up_again_is_ok_after_a_restart_of_the_broker(folder: Any) -> None:
    """That it was done follows from the dead letter, since memory is new."""
    clock = FakeClock()
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        stubs.create_topic(queues=1)
        stubs.create_group()
        with V2(broker.endpoint) as v2:
            a, b = sent(v2, b"a", b"b")
            dead_letter(v2, a)
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, V2(broker.endpoint) as v2:
        assert dead_letter(v2, a) == "OK"
        assert dead_letter(v2, b) == "OK"
    assert check_folder(folder) == []


def test_giving_up_a_message_after_its_lease_is_ok_and_has_no_effect(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    (a,) = sent(v2, b"a", invisible_s=10)
    clock.advance(10 * SECOND)
    assert dead_letter(v2, a) == "OK"
    assert dead_letter(v2, a, message_id="") == "OK"
    assert len(v2.receive().messages) == 1
    assert not shop.stats().dead


def test_giving_up_without_a_handle_finds_the_lease_by_the_message(shop: Stubs, v2: V2) -> None:
    with V2(v2.endpoint, client_id="cpp", language="CPP") as cpp:
        (a,) = sent(cpp, b"a", auto_renew=True)
        assert dead_letter(cpp, a, receipt_handle="", message_id="other") == "INVALID_RECEIPT_HANDLE"
        assert dead_letter(v2, a, receipt_handle="") == "INVALID_RECEIPT_HANDLE"
        assert dead_letter(cpp, a, receipt_handle="") == "OK"
        assert dead_letter(cpp, a, receipt_handle="") == "OK"
    assert len(dead_letters(shop)) == 1


def test_giving_up_without_a_handle_finds_the_lease_after_a_restart_of_the_broker(folder: Any) -> None:
    clock = FakeClock()
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        stubs.create_topic(type="FIFO")
        stubs.create_group(fifo=True)
        with V2(broker.endpoint, client_id="cpp", language="CPP") as cpp:
            cpp.send(*(message(b"x", message_id=name, message_type=pb.FIFO, message_group="g") for name in "abc"))
            a, b = cpp.receive(auto_renew=True, batch_size=2).messages
            acked(cpp, a)
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        with V2(broker.endpoint, client_id="cpp", language="CPP") as cpp:
            assert dead_letter(cpp, a, receipt_handle="") == "INVALID_RECEIPT_HANDLE"
            assert dead_letter(cpp, b, receipt_handle="") == "OK"
            assert dead_letter(cpp, b, receipt_handle="") == "OK"
            (c,) = cpp.receive(auto_renew=True).messages
            assert c.system_properties.message_id == "c"
        assert [letter.message_id for letter in dead_letters(stubs)] == ["b"]
    assert check_folder(folder) == []


def test_handles_remembered_for_clients_that_name_none_are_bounded(
    shop: Stubs, v2: V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "HELD_MAX", 1)
    with V2(v2.endpoint, client_id="cpp", language="CPP") as cpp:
        a, b = sent(cpp, b"a", b"b", auto_renew=True)
        for one in (a, b, b):
            assert dead_letter(cpp, one, receipt_handle="") == "OK"
        assert dead_letter(cpp, a, receipt_handle="") == "INVALID_RECEIPT_HANDLE"
