"""apache.rocketmq.v2: reading by queue and offset."""

from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from tests.wire.parked import Parked
from tests.wire.reading.v2_pull import begin, end, pull, queue
from tests.wire.rocketmq.v2 import V2, message, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

SECOND = 1_000


def update(v2: V2, offset: int, number: int = 0, topic: str = TOPIC, group: str = GROUP) -> str:
    return v2.code("UpdateOffset", group=resource(group), message_queue=queue(number, topic), offset=offset)


def committed(v2: V2, number: int = 0, topic: str = TOPIC, group: str = GROUP) -> tuple[str, int]:
    answer = v2.call("GetOffset", group=resource(group), message_queue=queue(number, topic))
    return pb.Code.Name(answer.status.code), answer.offset


def find(v2: V2, policy: Any, number: int = 0, topic: str = TOPIC, **fields: Any) -> tuple[str, int]:
    answer = v2.call("QueryOffset", message_queue=queue(number, topic), query_offset_policy=policy, **fields)
    return pb.Code.Name(answer.status.code), answer.offset


# ── PullMessage ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_pulled_message_is_whole_and_has_no_handle(shop: Stubs, v2: V2) -> None:
    v2.send(message(b"a", message_id="01", tag="paid", properties={"k": "v"}))
    raw = list(begin(v2))[1]
    found = rpc.PullMessageResponse.FromString(raw).message
    system = found.system_properties
    assert (found.topic, found.body, dict(found.user_properties)) == (resource(TOPIC), b"a", {"k": "v"})
    assert (system.message_id, system.tag, system.queue_offset) == ("01", "paid", 0)
    assert (system.message_type, system.delivery_attempt) == (pb.NORMAL, 1)
    assert not system.HasField("receipt_handle")


def test_a_v2_pull_at_the_end_returns_no_message_and_the_same_offset(shop: Stubs, v2: V2) -> None:
    assert pull(v2) == ("MESSAGE_NOT_FOUND", [], 0)
    shop.send(b"a")
    assert pull(v2, 1) == ("MESSAGE_NOT_FOUND", [], 1)


@pytest.mark.slow
def test_a_pull_waits_at_the_end_for_the_next_message(shop: Stubs, v2: V2, parked: Parked) -> None:
    shop.send(b"a")
    call = begin(v2, 1, poll_ms=20 * SECOND)
    parked.wait_for(1)
    shop.send(b"b")
    assert end(call) == ("OK", [b"b"], 2)


def test_an_offset_outside_is_illegal_and_corrected(shop: Stubs, v2: V2) -> None:
    shop.send(b"a")
    assert pull(v2, 9) == ("ILLEGAL_OFFSET", [], 1)
    assert pull(v2, -1).code == "ILLEGAL_OFFSET"
    with V2(v2.endpoint, language="RUST") as rust:
        assert pull(rust, -1).code == "BAD_REQUEST"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"queue": 1}, "BAD_REQUEST"),
        ({"queue": -1}, "BAD_REQUEST"),
        ({"topic": "unknown"}, "TOPIC_NOT_FOUND"),
        ({"group": "unknown"}, "CONSUMER_GROUP_NOT_FOUND"),
        ({"topic": "a b"}, "ILLEGAL_TOPIC"),
        ({"group": ""}, "ILLEGAL_CONSUMER_GROUP"),
        ({"poll_ms": -1}, "ILLEGAL_POLLING_TIME"),
        ({"filter_expression": pb.FilterExpression(type=pb.SQL, expression="(")}, "ILLEGAL_FILTER_EXPRESSION"),
    ],
)
def test_an_invalid_v2_pull_is_refused(shop: Stubs, v2: V2, fields: dict[str, Any], expected: str) -> None:
    assert pull(v2, **fields).code == expected


@pytest.mark.slow
def test_a_v2_pull_uses_the_filter_of_its_request_and_passes_over_other_messages(shop: Stubs, v2: V2) -> None:
    v2.send(message(b"a", message_id="1", tag="a"), message(b"b", message_id="2", tag="b"))
    for tag, expected in (("a", [b"a"]), ("b", [b"b"]), ("c", [])):
        wanted = pb.FilterExpression(type=pb.TAG, expression=tag)
        pulled = pull(v2, filter_expression=wanted)
        assert (pulled.bodies, pulled.next_offset) == (expected, 2)


# ── Offsets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_committed_offset_is_the_last_one_that_was_updated(shop: Stubs, v2: V2) -> None:
    shop.send(b"a", b"b", b"c")
    assert committed(v2) == ("OFFSET_NOT_FOUND", 0)
    assert pull(v2).next_offset == 3
    assert committed(v2) == ("OK", 0)
    assert update(v2, 2) == "OK"
    assert committed(v2) == ("OK", 2)
    assert update(v2, 1) == "OK"
    assert committed(v2) == ("OK", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"offset": -1}, "ILLEGAL_OFFSET"),
        ({"offset": 2}, "ILLEGAL_OFFSET"),
        ({"offset": 0, "number": 1}, "BAD_REQUEST"),
        ({"offset": 0, "number": -1}, "BAD_REQUEST"),
        ({"offset": 0, "topic": "unknown"}, "TOPIC_NOT_FOUND"),
        ({"offset": 0, "group": "unknown"}, "CONSUMER_GROUP_NOT_FOUND"),
        ({"offset": 0, "topic": ""}, "ILLEGAL_TOPIC"),
        ({"offset": 0, "group": "a b"}, "ILLEGAL_CONSUMER_GROUP"),
    ],
)
def test_an_offset_that_cannot_be_is_refused(shop: Stubs, v2: V2, fields: dict[str, Any], expected: str) -> None:
    shop.send(b"a")
    assert update(v2, **fields) == expected
    assert committed(v2)[0] in ("OFFSET_NOT_FOUND", "OK")


def switch(stubs: Stubs, mode: Any) -> None:
    request = native.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=mode)
    stubs.admin.SetConsumeMode(request, timeout=CALL_S)


@pytest.mark.slow
def test_a_group_that_pops_is_not_pulled_until_an_operator_switches_it(shop: Stubs, v2: V2) -> None:
    shop.send(b"a", b"b")
    v2.ack(*v2.receive(batch_size=1).messages)
    assert (pull(v2).code, update(v2, 2)) == ("PRECONDITION_FAILED", "PRECONDITION_FAILED")
    assert committed(v2) == ("OK", 1)
    switch(shop, native.PULL)
    assert (pull(v2, 1).bodies, update(v2, 2)) == ([b"b"], "OK")
    switch(shop, native.POP)
    assert (pull(v2, 1).code, update(v2, 2)) == ("PRECONDITION_FAILED", "PRECONDITION_FAILED")


def test_a_group_created_again_pulls_again(shop: Stubs, v2: V2) -> None:
    shop.send(b"a")
    assert update(v2, 1) == "OK"
    shop.admin.DeleteGroup(native.DeleteGroupRequest(name=GROUP), timeout=CALL_S)
    shop.create_group()
    assert update(v2, 1) == "OK"
    shop.admin.DeleteGroup(native.DeleteGroupRequest(name=GROUP), timeout=CALL_S)
    shop.create_group()
    assert pull(v2).bodies == [b"a"]


@pytest.mark.slow
def test_a_pull_commits_the_start_of_a_group_that_begins_at_the_latest(shop: Stubs, v2: V2) -> None:
    shop.create_group("late", start=native.StartPosition(**{"from": native.LATEST}))
    shop.send(b"a")
    pull(v2, 1, group="late")
    assert committed(v2, group="late") == ("OK", 1)


@pytest.mark.slow
def test_a_queue_begins_ends_and_knows_times(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    shop.send(b"a")
    clock.advance(10 * SECOND)
    then_ms = clock.now_ms()
    shop.send(b"b")
    assert find(v2, pb.BEGINNING) == ("OK", 0)
    assert find(v2, pb.END) == ("OK", 2)
    moment = {"seconds": then_ms // 1000, "nanos": then_ms % 1000 * 1_000_000}
    assert find(v2, pb.TIMESTAMP, timestamp=moment) == ("OK", 1)
    assert find(v2, pb.TIMESTAMP, timestamp={"seconds": -5}) == ("OK", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"policy": pb.TIMESTAMP}, "BAD_REQUEST"),
        ({"policy": 9}, "BAD_REQUEST"),
        ({"policy": pb.END, "number": 1}, "BAD_REQUEST"),
        ({"policy": pb.END, "number": -1}, "BAD_REQUEST"),
        ({"policy": pb.END, "topic": "unknown"}, "TOPIC_NOT_FOUND"),
        ({"policy": pb.END, "topic": ""}, "ILLEGAL_TOPIC"),
    ],
)
def test_a_question_about_no_queue_is_refused(shop: Stubs, v2: V2, fields: dict[str, Any], expected: str) -> None:
    assert find(v2, **fields)[0] == expected


def test_v2_pull_calls_need_a_client_id(shop: Stubs, v2: V2) -> None:
    with V2(v2.endpoint, client_id="") as nobody:
        assert pull(nobody).code == "CLIENT_ID_REQUIRED"
        assert update(nobody, 0) == committed(nobody)[0] == find(nobody, pb.END)[0] == "CLIENT_ID_REQUIRED"
