"""Errors and limits of a call that is tried again: codes, statuses, numbers of tries, timeouts."""

import asyncio
import time
from pkgutil import resolve_name
from typing import Any

import grpc
import pytest

import popmq
from popmq import errors
from popmq_http2 import Code
from popmq_http2.client.call import CallFailed, Status
from popmq_proto.v1 import popmq_pb2 as pb
from tests.sdk.calling.lossy import HANG, REFUSE, LossyWire
from tests.sdk.conftest import GROUP, QUICK, TOPIC, Connect


@pytest.mark.parametrize("code", sorted(set(pb.Code.keys()) - {"CODE_UNSPECIFIED"}))
async def test_every_code_of_the_contract_is_raised_as_its_class(lossy: Any, wire: LossyWire, code: str) -> None:
    info = pb.ErrorInfo(code=code, message="why", field="topic", action="do this")
    wire.plan["Send"] = [(grpc.StatusCode.FAILED_PRECONDITION, info)]
    with pytest.raises(errors.BY_CODE[code]) as raised:
        await lossy.send(TOPIC, b"x")
    error = raised.value
    assert (error.code, error.field, error.action, error.retryable) == (code, "topic", "do this", False)
    assert str(error) == "why (do this)"
    assert len(wire.seen["Send"]) == 1


@pytest.mark.slow
async def test_a_code_of_a_newer_broker_is_still_our_error(lossy: Any, wire: LossyWire) -> None:
    info = pb.ErrorInfo.FromString(b"\x08\x63\x12\x0dsomething new")  # code 99
    wire.plan["Send"] = [(grpc.StatusCode.FAILED_PRECONDITION, info)]
    with pytest.raises(errors.PopMQError, match="something new") as raised:
        await lossy.send(TOPIC, b"x")
    assert raised.value.code == "CODE_99"


@pytest.mark.parametrize(
    "status", [status for status in grpc.StatusCode if status not in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)]
)
async def test_every_status_without_details_is_our_error(
    connect: Connect, wire: LossyWire, status: grpc.StatusCode
) -> None:
    client = connect(wire.endpoint, retry=popmq.Retry(tries=1))
    wire.plan["ListTopics"] = [status]
    with pytest.raises(errors.PopMQError, match=r"said by the test|in time"):
        await client.topics.list()


async def test_a_busy_broker_is_asked_again_no_sooner_than_it_wants(lossy: Any, wire: LossyWire) -> None:
    busy = pb.ErrorInfo(code=pb.BUSY, message="busy", retryable=True, retry_after_ms=60)
    wire.plan["Send"] = [(grpc.StatusCode.RESOURCE_EXHAUSTED, busy)]
    start = time.monotonic()
    await lossy.send(TOPIC, b"x")
    assert time.monotonic() - start >= 0.06


async def test_tries_are_bounded_when_asked(connect: Connect, wire: LossyWire) -> None:
    client = connect(wire.endpoint, retry=popmq.Retry(first=0.001, tries=3))
    wire.plan["ListTopics"] = [REFUSE] * 5
    with pytest.raises(errors.Unavailable, match="refused by the test"):
        await client.topics.list()
    assert len(wire.seen["ListTopics"]) == 3


@pytest.mark.slow
async def test_a_broker_that_stays_away_is_given_up_at_the_timeout(connect: Connect) -> None:
    with LossyWire("127.0.0.1:1") as nowhere:
        gone = nowhere.endpoint
    client = connect(gone, timeouts=popmq.Timeouts.all(1.0), retry=QUICK)
    with pytest.raises(errors.Unavailable, match=f"no broker answers at {gone}") as raised:
        await client.topics.list()
    assert "popmq serve" in raised.value.action
    assert client.client_stats().retries > 1


@pytest.mark.slow
async def test_a_deadline_in_a_later_try_tells_what_went_wrong_before(connect: Connect, wire: LossyWire) -> None:
    client = connect(wire.endpoint, timeouts=popmq.Timeouts(admin=2.0), retry=QUICK)
    wire.plan["ListTopics"] = [REFUSE, HANG]
    with pytest.raises(errors.Unavailable, match="refused by the test"):
        await client.topics.list()


@pytest.mark.slow
async def test_a_broker_that_does_not_answer_meets_the_deadline(connect: Connect, wire: LossyWire) -> None:
    client = connect(wire.endpoint, timeouts=popmq.Timeouts(send=0.1))
    wire.plan["Send"] = [HANG]
    with pytest.raises(errors.DeadlineExceeded, match="whether it was done is not known"):
        await client.send(TOPIC, b"x")


async def test_a_broker_without_room_for_the_request_is_asked_again(lossy: Any, wire: LossyWire) -> None:
    """The transport says so, before there is a request that could be answered with details."""
    wire.plan["Send"] = [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE]
    await lossy.send(TOPIC, b"x")
    assert len(wire.seen["Send"]) == 3


async def test_a_broker_that_stays_without_room_is_busy(connect: Connect, wire: LossyWire) -> None:
    client = connect(wire.endpoint, retry=popmq.Retry(tries=1))
    wire.plan["ListTopics"] = [grpc.StatusCode.RESOURCE_EXHAUSTED]
    with pytest.raises(errors.Busy, match="said by the test") as raised:
        await client.topics.list()
    assert (raised.value.code, raised.value.retryable) == ("BUSY", True)


@pytest.mark.parametrize(
    "text", ["a message of 9 bytes; at most 8 are taken", "Received message larger than max (9 vs. 8)"]
)
def test_a_message_that_is_too_large_is_not_sent_again(text: str) -> None:
    """As both transports say it; no call of the SDK sends one, since it cuts requests and checks bodies before."""
    refused = CallFailed(Status(Code.RESOURCE_EXHAUSTED, text))
    error = resolve_name("popmq._transport.rpc_errors:read_rpc_error")(refused, "127.0.0.1:1", "Broker.Send")
    assert (type(error), error.retryable) == (errors.BadRequest, False)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command 'PRI'\r\n"])
async def test_a_server_that_is_not_a_broker_is_called_once(connect: Connect, said: bytes) -> None:
    called = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal called
        called += 1
        await reader.read(1)
        writer.write(said)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = connect(f"127.0.0.1:{port}", transport="python", retry=popmq.Retry(tries=3))
        with pytest.raises(errors.Unavailable, match="that port serves something else: name the broker's") as refused:
            await client.topics.list()
    assert (called, refused.value.retryable) == (1, False)


async def test_heartbeats_of_a_client_that_tries_once_have_a_second_between_them_while_the_broker_is_away(
    client: Any, connect: Connect, wire: LossyWire, advance: Any
) -> None:
    await client.send(TOPIC, "x")
    consumer = connect(wire.endpoint, retry=popmq.Retry(tries=1)).consume(TOPIC, GROUP)
    (await consumer.__anext__()).ack()
    wire.plan["Heartbeat"] = [REFUSE] * 10
    await advance(30.0)
    tried = len(wire.seen["Heartbeat"])
    for _ in range(9):
        await advance(0.1)
    assert len(wire.seen["Heartbeat"]) == tried
    await advance(0.1)
    assert len(wire.seen["Heartbeat"]) == tried + 1
    wire.plan["Heartbeat"].clear()
