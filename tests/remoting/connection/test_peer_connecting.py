"""Connections: made when they are needed, given up when a server is gone, tried again with pauses, kept alive."""

import asyncio
from pathlib import Path

import pytest

from popmq_remoting.connection.peer import Access, Peer
from popmq_remoting.connection.tls import ClusterTls, TlsMode
from popmq_remoting.errors import BrokerRefused, ConnectionLost, DeadlineOver, RemotingError, Unreachable
from popmq_remoting.requests import members, name_server
from popmq_remoting.wire.command import Request
from popmq_remoting.wire.signature import Credentials
from tests.remoting.connection.certificates import Certificates
from tests.remoting.connection.peers import ECHO, Pair, now_s, pair
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.jumping import jumping, passed, until

HEARTBEAT = 34


async def outcomes(both: Pair, count: int, within_s: float = 10.0) -> list[type]:
    """The kinds of outcome of so many calls at once."""
    found = await asyncio.gather(*(both.call(within_s=within_s) for _ in range(count)), return_exceptions=True)
    return [type(outcome) for outcome in found]


@jumping
async def test_a_server_that_is_not_there_costs_one_attempt_in_each_pause() -> None:
    async with pair() as both:
        await both.server.stop()
        assert await outcomes(both, 10) == [Unreachable] * 10  # one attempt, which all waited for
        assert both.peer.numbers().failures == 1
        assert await outcomes(both, 10) == [Unreachable] * 10
        assert both.peer.numbers().failures == 1
        await passed(1.0)
        assert await outcomes(both, 10) == [Unreachable] * 10
        assert both.peer.numbers().failures == 2
        assert both.peer.numbers().breaker_open


@jumping
async def test_when_it_is_back_one_call_tries_and_then_all_are_served() -> None:
    async with pair() as both:
        await both.server.stop()
        await outcomes(both, 1)
        await both.server.start()
        while both.peer.numbers().breaker_open:
            kinds = await outcomes(both, 5)
            assert kinds.count(Unreachable) >= 4
            await asyncio.sleep(0.1)
        assert await outcomes(both, 5) == [bytes] * 5


@jumping
async def test_a_server_that_was_killed_and_is_back_is_used_at_once() -> None:
    async with pair() as both:
        await both.call()
        await both.server.stop()
        await both.server.start()
        assert await both.call(b"x") == b"x"
        assert both.peer.numbers().connects == 2


@jumping
async def test_a_stopped_process_is_noticed_and_calls_end_in_time_until_it_goes_on() -> None:
    async with pair() as both:
        await both.call()
        both.server.running.clear()
        began_s = now_s()
        assert await outcomes(both, 3, within_s=4.0) == [DeadlineOver] * 3
        assert now_s() - began_s == pytest.approx(4.0, abs=0.1)
        await until(lambda: both.peer.numbers().breaker_open or now_s() > began_s + 15.0)
        assert both.peer.numbers().breaker_open  # the heartbeat after a late call was late, too
        assert await outcomes(both, 3, within_s=4.0) == [Unreachable] * 3  # at once, though it accepts connections
        for _ in range(4):
            before_s = now_s()
            await outcomes(both, 3, within_s=1.0)
            assert now_s() - before_s <= 1.1
            await passed(2.0)
        both.server.running.set()
        while both.peer.numbers().breaker_open:
            await outcomes(both, 1)
            await asyncio.sleep(0.5)
        assert await both.call(b"x") == b"x"


@jumping
async def test_a_stopped_process_is_noticed_while_calls_wait_which_end_before_their_deadlines() -> None:
    async with pair() as both:
        await both.call()
        both.server.running.clear()
        began_s = now_s()
        waiting = asyncio.ensure_future(outcomes(both, 3, within_s=60.0))
        await passed(0.5)
        assert not both.peer.is_silent
        await passed(0.6)
        assert both.peer.is_silent
        assert await waiting == [ConnectionLost] * 3
        assert now_s() - began_s == pytest.approx(6.0, abs=0.2)  # a second of silence, five for the heartbeat


@jumping
async def test_one_late_answer_is_no_silence_while_a_heartbeat_is_answered() -> None:
    async with pair() as both:
        both.server.faults.add(Fault(Kind.SLOW, seconds=30.0), ECHO)
        assert await both.call(b"x", within_s=60.0) == b"x"
        assert both.server.connections == 1
        assert not both.peer.is_silent


@jumping
async def test_calls_that_end_late_while_others_are_answered_cost_no_connection() -> None:
    async with pair() as both:
        both.server.faults.add(Fault(Kind.SILENT), ECHO, times=3)
        for _ in range(3):
            await outcomes(both, 1, within_s=4.0)
        await passed(60.0)
        assert await both.call(b"x") == b"x"
        assert both.server.connections == 1


@jumping
async def test_a_late_call_asks_for_no_sign_of_life_where_there_is_one() -> None:
    async with pair() as both:
        both.server.faults.add(Fault(Kind.SILENT), ECHO)
        late = asyncio.create_task(outcomes(both, 1, within_s=4.0))
        for _ in range(5):
            await passed(0.9)
            await both.call()
        assert await late == [DeadlineOver]
        await passed(1.0)
        assert both.server.counts[HEARTBEAT] == 1


@jumping
async def test_a_new_connection_begins_with_a_heartbeat_and_repeats_it_each_30_s() -> None:
    async with pair() as both:
        await both.call()
        await passed(95.0)
        assert both.server.counts[HEARTBEAT] == 4
        assert both.server.connections == 1


@jumping
async def test_a_heartbeat_is_sent_at_once_when_what_it_says_has_changed() -> None:
    groups: list[str] = []
    async with pair(heartbeat=lambda: members.heartbeat("c", groups)) as both:
        await both.call()
        groups.append("orders")
        await both.peer.beat()
        assert b'"groupName":"orders"' in both.server.requests[-1].body


@pytest.mark.parametrize("idle_s", [None, 120.0])
@jumping
async def test_a_name_servers_connection_that_was_idle_is_made_anew_before_it_is_used(idle_s: float | None) -> None:
    async with pair(heartbeat=None) as both:
        both.server.idle_s = idle_s
        await both.call()
        for _ in range(2):
            await passed(119.9)
            assert await both.call(b"x") == b"x"
        assert both.peer.numbers().connects == 3
        assert both.peer.numbers().failures == 0


@jumping
async def test_a_connection_that_is_kept_comes_back_by_itself() -> None:
    async with pair() as both:
        both.peer.keep()
        both.peer.keep()
        await until(lambda: both.peer.numbers().connected and bool(both.server.counts[HEARTBEAT]))
        await both.server.stop()
        await until(lambda: both.peer.numbers().failures >= 3, 0.5)
        await both.server.start()
        await until(lambda: both.peer.numbers().connected, 0.5)
        await passed(1.0)
        assert both.server.counts[HEARTBEAT] == 3  # of the first connection, of the probe, of the second one


@jumping
async def test_a_server_that_accepts_and_says_nothing_is_tried_with_pauses() -> None:
    async with pair() as both:
        both.server.faults.add(Fault(Kind.DROPPED), times=None)
        assert await outcomes(both, 1) == [ConnectionLost]
        for _ in range(20):
            await outcomes(both, 1)
        assert both.server.connections == 1
        assert both.peer.numbers().breaker_open


@jumping
async def test_a_close_ends_a_connection_that_still_has_to_prove_itself() -> None:
    async with pair() as both:
        await both.server.stop()
        await outcomes(both, 1)
        await both.server.start()
        both.server.running.clear()
        await passed(2.0)
        proving = asyncio.create_task(outcomes(both, 1))
        await until(lambda: bool(both.server.clients))
        await both.peer.close()
        assert await proving == [Unreachable]
        both.server.running.set()
        await passed(1.0)
        assert both.server.clients == []


@pytest.mark.parametrize("address", ["a..b:9876", f"{'x' * 64}.com:9876"])
def test_a_name_that_no_host_has_is_unreachable(address: str) -> None:
    async def called() -> None:
        peer = Peer(address, Access())
        with pytest.raises(Unreachable, match="cannot connect to"):
            await peer.call(Request(ECHO), asyncio.get_running_loop().time() + 3.0)
        await peer.close()

    asyncio.run(called())


@jumping
async def test_a_name_server_is_proved_by_a_question_of_its_own_after_a_failure() -> None:
    async with pair(heartbeat=None, probe=name_server.get_kv("", "")) as both:
        await both.server.stop()
        await outcomes(both, 1)
        await both.server.start()
        while both.peer.numbers().breaker_open:
            await outcomes(both, 1)
            await asyncio.sleep(0.1)
        assert both.server.counts[101] == 1


@jumping
async def test_a_heartbeat_that_is_refused_is_logged_with_the_brokers_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as both:
        both.server.faults.add(answering(16, "no such user"), HEARTBEAT)
        await both.call()
        await passed(1.0)
        await both.call()  # its answer comes behind that of the heartbeat, whatever else the machine does
        assert "answered a heartbeat with code 16: no such user" in caplog.text


# ── Who is at the other end ──────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_signed_requests_are_taken_and_others_refused() -> None:
    secrets = {"user": "secret"}
    async with pair(secrets=secrets, credentials=Credentials("user", "secret")) as both:
        assert await both.call(b"x") == b"x"
    for credentials in (None, Credentials("user", "wrong"), Credentials("other", "secret")):
        async with pair(secrets=secrets, credentials=credentials) as both:
            with pytest.raises(BrokerRefused) as refused:
                await both.call()
            assert refused.value.code == 16


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


async def over_tls(certificates: Certificates, tls: ClusterTls, asks_client: bool = False) -> bytes | RemotingError:
    """The outcome of a call."""
    context = certificates.server(asks_client)
    async with pair(server_tls=context, tls=tls.context(), server_name=tls.server_name) as both:
        try:
            return await both.call(b"x")
        except RemotingError as error:
            return error


def test_tls_on_encrypts_and_takes_any_certificate(certificates: Certificates) -> None:
    @jumping
    async def run() -> None:
        assert await over_tls(certificates, ClusterTls(TlsMode.ON)) == b"x"

    run()


def test_tls_verified_takes_a_certificate_of_the_authority_and_the_name(certificates: Certificates) -> None:
    @jumping
    async def run() -> None:
        ca, other = str(certificates.ca), str(certificates.other_ca)
        verify = TlsMode.VERIFY
        assert await over_tls(certificates, ClusterTls(verify, ca)) == b"x"  # it names 127.0.0.1
        assert await over_tls(certificates, ClusterTls(verify, ca, server_name="brokers")) == b"x"
        for wrong in (ClusterTls(verify, other), ClusterTls(verify, ca, server_name="elsewhere"), ClusterTls(verify)):
            error = await over_tls(certificates, wrong)
            assert isinstance(error, Unreachable)
            assert "certificate" in str(error)

    run()


def test_a_client_certificate_is_shown_where_it_is_asked_for(certificates: Certificates) -> None:
    @jumping
    async def run() -> None:
        ca, cert, key = (str(path) for path in (certificates.ca, certificates.cert, certificates.key))
        with_one = ClusterTls(TlsMode.VERIFY, ca, cert, key)
        assert await over_tls(certificates, with_one, asks_client=True) == b"x"
        assert isinstance(await over_tls(certificates, ClusterTls(TlsMode.VERIFY, ca), asks_client=True), RemotingError)

    run()


@jumping
async def test_a_server_that_does_not_speak_tls_is_unreachable_within_a_second() -> None:
    async with pair(tls=ClusterTls(TlsMode.ON).context()) as both:
        began_s = now_s()
        assert await outcomes(both, 1) == [Unreachable]
        assert now_s() - began_s <= 1.1


def test_files_that_are_not_there_are_reported_before_anything_is_called(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        ClusterTls(TlsMode.VERIFY, str(tmp_path / "ca.pem")).context()
    assert ClusterTls().context() is None
