"""Results on the wire: given with an ack, waited for, and read by those who may."""

from pathlib import Path
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.loop import parked_results
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.access.signing import SignedStubs, write_keys
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, codes, handles, refusal

HOUR = 3_600_000


@pytest.fixture
def shop(stubs: Stubs) -> Stubs:
    """A topic of one queue, and a group that keeps results."""
    stubs.create_topic(queues=1)
    stubs.create_group(results_keep_ms=HOUR)
    return stubs


def give(shop: Stubs, handle: str, body: bytes, **fields: Any) -> None:
    result = pb.DeliveryResult(handle=0, body=body, **fields)
    shop.broker.Ack(pb.AckRequest(group=GROUP, handles=[handle], results=[result]), timeout=CALL_S)


def asking(*ids: str, **fields: Any) -> pb.GetResultsRequest:
    return pb.GetResultsRequest(group=GROUP, message_ids=ids, **fields)


def get(shop: Stubs, *ids: str, **fields: Any) -> pb.GetResultsResponse:
    answer: pb.GetResultsResponse = shop.broker.GetResults(asking(*ids, **fields), timeout=CALL_S)
    return answer


def get_later(shop: Stubs, *ids: str, wait_ms: int = 60_000, **fields: Any) -> Any:
    return shop.broker.GetResults.future(asking(*ids, wait_ms=wait_ms, **fields), timeout=CALL_S)


def code(call: Any, request: Any) -> str:
    return pb.Code.Name(refusal(call, request).info.code)


def texts(answer: pb.GetResultsResponse) -> dict[str, bytes]:
    return {row.message_id: row.body for row in answer.results}


def leased(shop: Stubs, *bodies: bytes) -> list[str]:
    shop.send(*bodies)
    return handles(shop.pop(max_messages=len(bodies)))


def test_a_result_is_answered_as_it_was_given(shop: Stubs, clock: FakeClock) -> None:
    (handle,) = leased(shop, b"a")
    clock.advance(5)
    give(shop, handle, b"\x00result", content_type="application/octet-stream")
    (row,) = get(shop, "a", "b").results
    wanted = pb.Result(message_id="a", body=b"\x00result", content_type="application/octet-stream")
    wanted.stored_ms = clock.now_ms()
    assert row == wanted


def test_a_dead_letter_is_a_failed_result(shop: Stubs) -> None:
    (handle,) = leased(shop, b"a")
    shop.change(handle, reject=pb.Reject(reason="no stock"))
    (row,) = get(shop, "a").results
    assert (row.failure.reason, row.failure.attempts, row.failure.topic) == ("no stock", 1, TOPIC)


def test_a_wait_ends_with_the_result_of_a_message_that_is_sent_later(shop: Stubs, parked: Parked) -> None:
    waiting = get_later(shop, "a")
    parked.wait_for(1)
    (handle,) = leased(shop, b"a")
    give(shop, handle, b"A")
    assert texts(waiting.result()) == {"a": b"A"}


def test_a_wait_for_all_ends_with_the_last_and_one_for_some_before(shop: Stubs, parked: Parked) -> None:
    first, second = leased(shop, b"a", b"b")
    every, one = get_later(shop, "a", "b"), get_later(shop, "a", "b", min_results=1)
    parked.wait_for(2)
    give(shop, first, b"A")
    assert texts(one.result()) == {"a": b"A"}
    parked.wait_for(3)  # the other call looked again
    give(shop, second, b"B")
    assert texts(every.result()) == {"a": b"A", "b": b"B"}


def test_a_wait_that_is_over_answers_what_is_there(shop: Stubs, parked: Parked, clock: FakeClock) -> None:
    first, _ = leased(shop, b"a", b"b")
    give(shop, first, b"A")
    waiting = get_later(shop, "a", "b", wait_ms=10_000)
    parked.wait_for(1)
    clock.advance(10_000)
    assert texts(waiting.result()) == {"a": b"A"}


def test_all_who_wait_for_a_result_get_it_and_those_of_another_id_wait_on(shop: Stubs, parked: Parked) -> None:
    first, second = leased(shop, b"a", b"b")
    two, other = [get_later(shop, "a") for _ in range(2)], get_later(shop, "b")
    parked.wait_for(3)
    give(shop, first, b"A")
    assert [texts(one.result()) for one in two] == [{"a": b"A"}] * 2
    give(shop, second, b"B")
    assert texts(other.result()) == {"b": b"B"}


def test_more_ids_than_the_broker_waits_for_are_refused(
    shop: Stubs, parked: Parked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_results, "IDS_MAX", 2)
    waiting = get_later(shop, "a", "b")
    parked.wait_for(1)
    assert code(shop.broker.GetResults, asking("c", wait_ms=1000)) == "POLLING_FULL"
    assert texts(get(shop, "c")) == {}
    waiting.cancel()


def test_an_answer_that_is_full_says_so_and_the_rest_comes_with_the_next(shop: Stubs) -> None:
    for handle in leased(shop, b"a", b"b"):
        give(shop, handle, b"x" * 1000)
    first = get(shop, "a", "b", max_bytes=1500)
    assert (len(first.results), first.full) == (1, True)
    (left,) = {"a", "b"} - texts(first).keys()
    second = get(shop, left, max_bytes=1500, wait_ms=1000)
    assert (list(texts(second)), second.full) == ([left], False)


def test_forgotten_results_are_not_found(shop: Stubs) -> None:
    (handle,) = leased(shop, b"a")
    give(shop, handle, b"A")
    shop.broker.ForgetResults(pb.ForgetResultsRequest(group=GROUP, message_ids=["a"]), timeout=CALL_S)
    assert texts(get(shop, "a")) == {}


def test_a_result_of_a_lapsed_handle_is_refused_and_that_of_another_is_kept(shop: Stubs) -> None:
    first, second = leased(shop, b"a", b"b")
    shop.ack(first)
    results = [pb.DeliveryResult(handle=at, body=b"x") for at in range(2)]
    answer = shop.broker.Ack(pb.AckRequest(group=GROUP, handles=[first, second], results=results), timeout=CALL_S)
    assert codes(answer.results) == ["HANDLE_LAPSED", ""]
    assert texts(get(shop, "a", "b")) == {"b": b"x"}


def test_topics_of_results_are_listed_only_on_request(shop: Stubs) -> None:
    listed = [
        [topic.name for topic in shop.admin.ListTopics(pb.ListTopicsRequest(dead_letter_topics=every)).topics]
        for every in (False, True)
    ]
    assert listed == [[TOPIC], [f"%DLQ%{GROUP}", f"%RESULT%{GROUP}", TOPIC]]


def test_results_are_there_after_restarts(folder: Path, clock: FakeClock) -> None:
    for body in (b"a", b"b"):
        with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as shop:
            shop.create_topic(queues=1)
            shop.create_group(results_keep_ms=HOUR)
            (handle,) = leased(shop, body)
            give(shop, handle, body.upper())
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as shop:
        assert texts(get(shop, "a", "b")) == {"a": b"A", "b": b"B"}


def test_a_key_that_may_look_at_the_results_of_a_group_reads_them_and_one_that_consumes_does_not(
    tmp_path: Path,
) -> None:
    allow = {
        "root": ["*"],
        "caller": [f"send:{TOPIC}", f"receive:%RESULT%{GROUP}/callers"],
        "worker": [f"receive:{TOPIC}/{GROUP}"],
    }
    write_keys(tmp_path / "keys.toml", allow)
    with (
        EmbeddedBroker(tmp_path / "data", sync="none", access_keys=tmp_path / "keys.toml") as broker,
        SignedStubs(broker.endpoint, "root") as root,
        SignedStubs(broker.endpoint, "caller") as caller,
        SignedStubs(broker.endpoint, "worker") as worker,
    ):
        root.create_topic(queues=1)
        root.create_group(results_keep_ms=HOUR)
        caller.send(b"a")
        give(worker, handles(worker.pop())[0], b"A")
        assert texts(get(caller, "a")) == {"a": b"A"}
        assert code(worker.broker.GetResults, asking("a")) == "PERMISSION_DENIED"
        assert code(caller.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP)) == "PERMISSION_DENIED"
        caller.broker.ForgetResults(pb.ForgetResultsRequest(group=GROUP, message_ids=["a"]), timeout=CALL_S)
        assert texts(get(caller, "a")) == {}
