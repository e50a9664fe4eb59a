"""Transactions on the wire: half messages, their end, and the stream on which producers are asked about them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock, stopwatch
from popmq_server.contract.commands import (
    End,
    Ended,
    EndTransaction,
    Place,
)
from popmq_server.embedded.loop.producers import CheckStream, Producers
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.process import serving
from popmq_server.protocols import validation
from popmq_server.protocols.native.producer_stream import SessionService
from popmq_server.values.handles import TransactionId, read_transaction, transaction_text
from tests.wire.parked import Parked
from tests.wire.producer import DEALS, Producer, hello, listed
from tests.wire.stubs import CALL_S, Stubs, bodies, check_error, codes, read_refusal

SECOND, HOUR = 1_000, 3_600_000
FIRST_CHECK, NEXT_CHECK = 6 * SECOND, 30 * SECOND


def send(stubs: Stubs, *texts: bytes, topic: str = DEALS, **fields: Any) -> list[str]:
    """Half messages; their transaction ids."""
    messages = [pb.Message(message_id=text.decode(), body=text, transaction=True, **fields) for text in texts]
    results = stubs.broker.Send(pb.SendRequest(topic=topic, messages=messages), timeout=CALL_S).results
    assert codes(results) == [""] * len(texts)
    return [result.transaction_id for result in results]


def end(stubs: Stubs, resolution: pb.Resolution, *ids: str) -> list[pb.SendResult]:
    ends = [pb.TransactionEnd(transaction_id=name, resolution=resolution) for name in ids]
    answer: pb.EndTransactionResponse = stubs.broker.EndTransaction(pb.EndTransactionRequest(ends=ends), timeout=CALL_S)
    return list(answer.results)


def wait_for_checks(stubs: Stubs, count: int) -> None:
    """A check counts once the broker has written it, which may be a moment after it was read here."""
    deadline = stopwatch() + CALL_S
    while [half.checks for half in listed(stubs)] != [count]:
        assert stopwatch() < deadline, listed(stubs)


def wait_until_ended(stubs: Stubs) -> None:
    deadline = stopwatch() + CALL_S
    while listed(stubs):
        assert stopwatch() < deadline, listed(stubs)


# ── Send and end ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise("transactions")
@pytest.mark.slow
def test_a_commit_answers_the_place_and_a_rollback_none(deals: Stubs) -> None:
    first, second, third = send(deals, b"a", b"b", b"c")
    (gone,) = end(deals, pb.ROLLBACK, first)
    assert (gone.message_id, gone.queue, gone.offset) == ("a", 0, 0)
    results = end(deals, pb.COMMIT, third, second)
    assert [(result.message_id, result.offset) for result in results] == [("c", 0), ("b", 1)]
    popped = deals.pop(DEALS)
    assert bodies(popped) == [b"c", b"b"]
    assert [delivery.message.transaction for delivery in popped.deliveries] == [True, True], "stored byte for byte"


def test_a_commit_of_a_delayed_half_message_answers_its_recall_handle(deals: Stubs, clock: FakeClock) -> None:
    (half,) = send(deals, b"a", delay_ms=HOUR)
    clock.advance(HOUR)
    (result,) = end(deals, pb.COMMIT, half)
    assert result.recall_handle, "the delay counts from the commit"
    (delayed,) = deals.admin.ListDelayed(pb.ListDelayedRequest(topic=DEALS), timeout=CALL_S).messages
    assert (delayed.due_ms, delayed.recall_handle) == (clock.now_ms() + HOUR, result.recall_handle)


@pytest.mark.embedded("ids of transactions that a test can write")
def test_bad_entries_are_refused_one_by_one_and_their_neighbours_end(deals: Stubs) -> None:
    (half,) = send(deals, b"a")
    known = read_transaction(half)
    assert known is not None
    forged = transaction_text(known._replace(nonce=known.nonce ^ 1))
    unknown = transaction_text(TransactionId(known.topic_id, 99, 1))
    cases = [
        ("", pb.COMMIT, "INVALID_FIELD", "transaction_id"),
        ("x" * 100_000, pb.COMMIT, "INVALID_FIELD", "transaction_id"),
        ("é" * 32, pb.COMMIT, "INVALID_FIELD", "transaction_id"),
        (half[:-1] + ("A" if half[-1] != "A" else "B"), pb.COMMIT, "INVALID_FIELD", "transaction_id"),
        (half.lower(), pb.COMMIT, "INVALID_FIELD", "transaction_id"),
        (half, pb.RESOLUTION_UNSPECIFIED, "INVALID_FIELD", "resolution"),
        (half, 7, "INVALID_FIELD", "resolution"),
        (forged, pb.ROLLBACK, "TRANSACTION_NOT_FOUND", "transaction_id"),
        (unknown, pb.ROLLBACK, "TRANSACTION_NOT_FOUND", "transaction_id"),
        (half, pb.COMMIT, "", ""),
        (half, pb.ROLLBACK, "TRANSACTION_ENDED", "transaction_id"),
    ]
    ends = [pb.TransactionEnd(transaction_id=name, resolution=how) for name, how, *_ in cases]  # type: ignore[arg-type]
    results = deals.broker.EndTransaction(pb.EndTransactionRequest(ends=ends), timeout=CALL_S).results
    assert codes(results) == [code for *_, code, _ in cases]
    for place, (result, (*_, field)) in enumerate(zip(results, cases, strict=True)):
        if field:
            check_error(result.error)
            assert result.error.field == f"ends[{place}].{field}"
    assert bodies(deals.pop(DEALS)) == [b"a"]


@pytest.mark.parametrize("count", [0, validation.ENTRIES_MAX + 1])
def test_a_request_ends_1_to_4096_transactions(deals: Stubs, count: int) -> None:
    with pytest.raises(grpc.RpcError) as error:
        end(deals, pb.COMMIT, *["x"] * count)
    assert (read_refusal(error.value).code, read_refusal(error.value).info.field) == ("INVALID_FIELD", "ends")


@pytest.mark.slow
def test_half_messages_are_listed_topic_by_topic_oldest_first_and_counted(deals: Stubs, clock: FakeClock) -> None:
    deals.create_topic("other", type=pb.DELAY)
    first = send(deals, b"a")
    clock.advance(SECOND)
    send(deals, b"b", topic="other")
    second = send(deals, b"c")
    answer = deals.admin.ListTransactions(pb.ListTransactionsRequest(max_messages=2), timeout=CALL_S)
    rows = [(row.topic, row.message_id, row.transaction_id, row.checks) for row in answer.messages]
    assert rows == [(DEALS, "a", first[0], 0), (DEALS, "c", second[0], 0)]
    assert answer.total == 3
    now = clock.now_ms()
    assert [row.stored_ms for row in answer.messages] == [now - SECOND, now]
    assert [row.next_check_ms for row in answer.messages] == [now - SECOND + FIRST_CHECK, now + FIRST_CHECK]
    assert [row.message_id for row in listed(deals, DEALS)] == ["a", "c"]


def test_the_list_shows_what_half_messages_contain(deals: Stubs) -> None:
    half = pb.Message(message_id="a", body=b"y" * 257, keys=["k"], tag="red", transaction=True)
    deals.broker.Send(pb.SendRequest(topic=DEALS, messages=[half]), timeout=CALL_S)
    (row,) = listed(deals)
    assert row.preview == pb.MessagePreview(keys=["k"], tag="red", body=b"y" * 256, body_bytes=257)


# ── Check-back ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("resolution", "seen"), [(pb.COMMIT, [b"a"]), (pb.ROLLBACK, [])])
def test_a_producer_is_asked_after_six_seconds_and_its_answer_ends_the_transaction(
    deals: Stubs, clock: FakeClock, resolution: pb.Resolution, seen: list[bytes]
) -> None:
    with Producer(deals, DEALS) as producer:
        (half,) = send(deals, b"a")
        clock.advance(FIRST_CHECK)
        check = producer.asked()
        assert (check.transaction_id, check.topic, check.message.body, check.check) == (half, DEALS, b"a", 1)
        producer.answer(check, resolution)
        wait_until_ended(deals)
    assert bodies(deals.pop(DEALS)) == seen
    assert codes(end(deals, resolution, half)) == [""]


@pytest.mark.parametrize("how", ["vanish", "close"])
def test_a_stream_that_ended_is_forgotten_at_once(deals: Stubs, clock: FakeClock, left: Parked, how: str) -> None:
    first, second = Producer(deals, DEALS), Producer(deals, DEALS)
    send(deals, b"a")
    getattr(first, how)()
    left.wait_for(1)
    for number in (1, 2, 3):
        clock.advance(FIRST_CHECK if number == 1 else NEXT_CHECK)
        assert second.asked().check == number, "every one of them: the other is not asked any more"
        wait_for_checks(deals, number)
    second.vanish()


def test_answers_sent_before_the_stream_is_closed_are_applied(deals: Stubs, clock: FakeClock) -> None:
    producer = Producer(deals, DEALS)
    ids = send(deals, *(str(number).encode() for number in range(20)))
    clock.advance(FIRST_CHECK)
    for _ in ids:
        producer.answer(producer.asked(), pb.COMMIT)
    producer.close()
    assert listed(deals) == []
    assert len(bodies(deals.pop(DEALS))) == 20


class Recorder:
    """An engine that only remembers what was ended."""

    def __init__(self) -> None:
        self.producers = Producers(lambda: None, lambda check: asyncio.Future[object]())
        self.ended: list[str] = []

    async def join(self, client: str, topics: tuple[str, ...]) -> CheckStream:
        return CheckStream(self.producers, client, frozenset(topics), 0)

    async def execute(self, command: EndTransaction) -> list[Ended]:
        self.ended += [entry.transaction for entry in command.ends if isinstance(entry, End)]
        return [Ended("", Place())] * len(command.ends)


@pytest.mark.parametrize("last", ["closed", "refused"])
async def test_answers_that_come_together_with_the_end_of_the_stream_are_done(last: str) -> None:
    ids = [f"transaction {number}" for number in range(5)]

    async def said() -> AsyncIterator[bytes]:
        yield hello(DEALS).SerializeToString()
        for name in ids:
            answer = pb.TransactionChecked(transaction_id=name, resolution=pb.COMMIT)
            yield pb.SessionRequest(checked=answer).SerializeToString()
        if last == "refused":
            yield b"\xff"

    engine = Recorder()
    session = SessionService(engine, Metrics()).Session(said())  # type: ignore[arg-type]
    with pytest.raises(Refused) if last == "refused" else contextlib.nullcontext():
        assert len([response async for response in session]) == 1
    assert engine.ended == ids


@pytest.mark.slow
def test_a_stop_ends_open_streams_promptly_and_says_why(
    broker: EmbeddedBroker, deals: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "DRAIN_S", 3_600.0)
    producers = [Producer(deals, DEALS) for _ in range(5)]
    began = stopwatch()
    broker.stop()
    assert stopwatch() - began < 2.0
    assert [producer.refused().code for producer in producers] == ["UNAVAILABLE"] * 5
