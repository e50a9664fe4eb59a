"""Calls over a connection: all end by their deadline, typed, and none gets the answer of another."""

import asyncio
import random
from collections.abc import Awaitable

import pytest

from popmq_remoting.connection.limits import PeerLimits
from popmq_remoting.connection.peer import host_and_port
from popmq_remoting.errors import BadFormat, ConnectionLost, DeadlineOver, RemotingError, TooBusy, Unreachable
from popmq_remoting.wire.command import Request, Response
from tests.remoting.connection.peers import ECHO, now_s, pair
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.jumping import jumping, passed, until


async def error_of(call: Awaitable[object]) -> RemotingError:
    """What a call raised."""
    with pytest.raises(RemotingError) as caught:
        await call
    return caught.value


@jumping
async def test_many_calls_share_a_connection_and_those_of_a_turn_leave_with_one_write() -> None:
    async with pair(heartbeat=None) as both:
        await both.call(b"first")
        before = len(both.server.reads)
        bodies = [b"%d" % number for number in range(100)]
        assert await asyncio.gather(*map(both.call, bodies)) == bodies
        assert len(both.server.reads) == before + 1
        assert both.server.connections == 1


@jumping
async def test_an_answer_of_several_megabytes_arrives_whole() -> None:
    async with pair() as both:
        body = bytes(range(256)) * (12 << 12)
        assert await both.call(body) == body


@pytest.mark.parametrize("kind", [Kind.SILENT, Kind.WRONG_OPAQUE])
@jumping
async def test_a_call_without_its_answer_ends_at_its_deadline(kind: Kind) -> None:
    async with pair() as both:
        both.server.faults.add(Fault(kind), ECHO)
        began_s = now_s()
        error = await error_of(both.call(within_s=3.0))
        assert isinstance(error, DeadlineOver)
        assert error.maybe_done
        assert now_s() - began_s == pytest.approx(3.0, abs=0.1)
        assert await both.call(b"next") == b"next"


@jumping
async def test_an_answer_after_the_deadline_reaches_no_other_call() -> None:
    async with pair() as both:
        both.server.faults.add(Fault(Kind.SLOW, seconds=2.0), ECHO)
        await error_of(both.call(b"late", within_s=1.0))
        both.server.faults.add(Fault(Kind.SLOW, seconds=5.0), ECHO)
        assert await both.call(b"other") == b"other"
        assert both.peer.numbers().unmatched_answers == 1


@pytest.mark.parametrize("kind", [Kind.ONEWAY_FIRST, Kind.TWICE])
@jumping
async def test_what_else_the_server_sends_is_no_answer(kind: Kind) -> None:
    async with pair() as both:
        for number in range(3):
            both.server.faults.add(Fault(kind), ECHO)
            assert await both.call(b"%d" % number) == b"%d" % number


@pytest.mark.parametrize(
    "fault",
    [Fault(Kind.DROPPED), Fault(Kind.GARBAGE), Fault(Kind.HUGE), Fault(Kind.CUT, size=0), Fault(Kind.CUT, size=20)],
)
@jumping
async def test_a_call_whose_connection_is_lost_says_so_and_is_not_repeated(fault: Fault) -> None:
    async with pair() as both:
        await both.call()
        before = both.server.counts[ECHO]
        both.server.faults.add(fault, ECHO)
        error = await error_of(both.call())
        assert isinstance(error, ConnectionLost)
        assert error.maybe_done
        assert both.server.counts[ECHO] == before + 1
        assert await both.call(b"next") == b"next"


@jumping
async def test_connections_cut_at_random_bytes_give_typed_errors_and_no_answer_to_a_wrong_call() -> None:
    numbers, answered = random.Random(7), 0
    async with pair() as both:
        for round in range(300):
            bodies = [b"%d-%d" % (round, number) for number in range(numbers.randrange(1, 5))]
            for _ in range(numbers.randrange(len(bodies))):
                both.server.faults.add(Fault(Kind.TWICE), ECHO)
            both.server.faults.add(Fault(Kind.CUT, size=numbers.randrange(120)), ECHO)
            began_s = now_s()
            outcomes = await asyncio.gather(*(both.call(body, 5.0) for body in bodies), return_exceptions=True)
            assert now_s() - began_s < 5.1
            for body, outcome in zip(bodies, outcomes, strict=True):
                assert outcome == body or isinstance(outcome, RemotingError)
                answered += outcome == body
            both.server.faults.clear()
            if both.peer.numbers().breaker_open:  # it was cut before anything was heard
                await passed(5.0)
        assert answered > 100
        assert both.server.connections > 100


@jumping
async def test_busy_is_repeated_with_growing_pauses() -> None:
    async with pair() as both:
        both.server.faults.add(answering(2, "[TIMEOUT_CLEAN_QUEUE]"), ECHO, times=4)
        began_s = now_s()
        assert await both.call(b"x") == b"x"
        assert now_s() - began_s == pytest.approx(0.02 + 0.04 + 0.08 + 0.16, abs=0.1)
        assert both.server.counts[ECHO] == 5


@jumping
async def test_busy_for_a_minute_ends_by_the_deadline_and_is_no_hot_loop() -> None:
    async with pair() as both:
        both.server.faults.add(answering(2, "busy"), ECHO, times=None)
        began_s = now_s()
        error = await error_of(both.call(within_s=60.0))
        assert isinstance(error, TooBusy)
        assert not error.maybe_done
        assert error.retry_after_ms == 500
        assert 59.0 < now_s() - began_s <= 60.0
        assert both.server.counts[ECHO] < 60 * 2 + 10


@jumping
async def test_a_server_that_goes_away_is_asked_once_more_on_a_new_connection_and_open_calls_end_as_they_come() -> None:
    async with pair() as both:
        both.server.faults.add(Fault(Kind.SLOW, seconds=3.0), ECHO)
        slow = asyncio.create_task(both.call(b"slow"))
        await asyncio.sleep(0)
        both.server.faults.add(answering(1500, "shutting down"), ECHO)
        assert await both.call(b"again") == b"again"
        assert both.server.connections == 2
        assert await slow == b"slow"
        await until(lambda: len(both.server.clients) == 1)  # the first one closes when its last call is over


@jumping
async def test_a_server_that_goes_away_again_is_unreachable_and_has_done_nothing() -> None:
    async with pair() as both:
        both.server.faults.add(answering(1500), ECHO, times=None)
        error = await error_of(both.call())
        assert isinstance(error, Unreachable)
        assert both.server.counts[ECHO] == 2


@jumping
async def test_calls_above_the_number_are_busy_at_once() -> None:
    async with pair(limits=PeerLimits(in_flight=10)) as both:
        both.server.faults.add(Fault(Kind.SLOW, seconds=1.0), ECHO, times=None)
        outcomes = await asyncio.gather(*(both.call() for _ in range(15)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes].count(TooBusy) >= 5
        both.server.faults.clear()
        assert await both.call(b"x") == b"x"


@jumping
async def test_a_server_that_reads_nothing_does_not_fill_the_memory() -> None:
    async with pair(limits=PeerLimits(in_flight_bytes=8 << 20)) as both:
        await both.call()
        both.server.running.clear()
        outcomes = await asyncio.gather(*(both.call(bytes(1 << 20), 1.0) for _ in range(40)), return_exceptions=True)
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds.count(TooBusy) >= 40 - 8
        assert set(kinds) == {TooBusy, DeadlineOver}
        again = await asyncio.gather(*(both.call(bytes(1 << 20), 1.0) for _ in range(40)), return_exceptions=True)
        assert [type(outcome) for outcome in again].count(DeadlineOver) <= 16


@jumping
async def test_a_request_that_is_too_large_for_a_frame_is_refused_and_the_connection_stays() -> None:
    async with pair() as both:
        assert isinstance(await error_of(both.call(bytes(16 << 20))), BadFormat)
        assert await both.call(b"x") == b"x"
        assert both.server.connections == 1


@jumping
async def test_a_caller_that_goes_frees_its_place() -> None:
    async with pair(heartbeat=None) as both:
        both.server.faults.add(Fault(Kind.SILENT), ECHO)
        call = asyncio.create_task(both.call())
        await until(lambda: both.server.counts[ECHO] == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert both.peer.numbers().in_flight == 0


@jumping
async def test_a_deadline_that_is_over_sends_nothing() -> None:
    async with pair() as both:
        await both.call()
        error = await error_of(both.call(within_s=-1.0))
        assert isinstance(error, DeadlineOver)
        assert not error.maybe_done
        assert both.server.counts[ECHO] == 1


@jumping
async def test_a_oneway_request_is_sent_and_not_waited_for() -> None:
    async with pair(heartbeat=None) as both:
        await both.peer.send_oneway(Request(ECHO, {}, b"x"), now_s() + 1.0)
        await until(lambda: both.server.counts[ECHO] == 1)
        assert both.peer.numbers().in_flight == 0


@jumping
async def test_requests_of_the_server_are_answered_known_unknown_failing_and_oneway() -> None:
    async def serve(request: Request) -> Response | None:
        if request.code == 309:
            raise ValueError("a bug")
        return Response(0, "", {"seen": request.fields["clientId"]}, b"info") if request.code == 307 else None

    async with pair(on_request=serve) as both:
        await both.call()
        (client,) = both.server.clients
        answers = [await client.ask(Request(code, {"clientId": "c"})) for code in (307, 309, 220)]
        assert [answer.code for answer in answers] == [0, 1, 3]
        assert (answers[0].fields, answers[0].body) == ({"seen": "c"}, b"info")
        client.send(Request(309))
        assert await both.call(b"x") == b"x"


@jumping
async def test_a_server_that_asks_too_much_at_once_is_told_so() -> None:
    gate = asyncio.Event()

    async def serve(request: Request) -> Response:
        await gate.wait()
        return Response(0)

    async with pair(on_request=serve, limits=PeerLimits(broker_requests=2)) as both:
        await both.call()
        (client,) = both.server.clients
        asked = [asyncio.create_task(client.ask(Request(307))) for _ in range(4)]
        done, _ = await asyncio.wait(asked, timeout=1.0)
        assert [task.result().code for task in done] == [2, 2]
        gate.set()
        assert sorted([(await task).code for task in asked]) == [0, 0, 2, 2]


@jumping
async def test_a_connection_that_retires_ends_when_the_last_request_of_its_server_is_answered() -> None:
    gate = asyncio.Event()

    async def serve(request: Request) -> Response:
        await gate.wait()
        return Response(0)

    async with pair(on_request=serve) as both:
        await both.call()
        (client,) = both.server.clients
        asked = asyncio.create_task(client.ask(Request(307)))
        both.server.faults.add(answering(1500), ECHO)
        await both.call()
        assert len(both.server.clients) == 2
        gate.set()
        assert (await asked).code == 0
        await passed(1.0)
        assert len(both.server.clients) == 1


@jumping
async def test_a_close_ends_the_calls_that_are_under_way_and_refuses_others() -> None:
    async with pair() as both:
        both.server.faults.add(Fault(Kind.SILENT), ECHO)
        call = asyncio.create_task(both.call())
        await until(lambda: both.server.counts[ECHO] == 1)
        await both.peer.close()
        assert isinstance(await error_of(call), ConnectionLost)
        assert isinstance(await error_of(both.call()), Unreachable)


@jumping
async def test_a_close_also_ends_connections_that_retire() -> None:
    async with pair() as both:
        both.server.faults.add(Fault(Kind.SILENT), ECHO)
        call = asyncio.create_task(both.call())
        await until(lambda: both.server.counts[ECHO] == 1)
        both.server.faults.add(answering(1500), ECHO)
        await both.call()
        await both.peer.close()
        assert isinstance(await error_of(call), ConnectionLost)
        await until(lambda: not both.server.clients)


@pytest.mark.parametrize("address", ["", "host", "host:", ":9876", "host:0", "host:99999", "host:x", "host:²"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadFormat, match="write host:port"):
        host_and_port(address)


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert host_and_port("[::1]:9876") == ("::1", 9876)
