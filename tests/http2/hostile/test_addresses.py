"""One address cannot have any number of connections, nor start anew with a full budget after a flood."""

import asyncio

import pytest

from harness.attacks import GREETING
from popmq_http2 import Limits, Server
from popmq_http2.frames import DATA, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, PING, U32, frame
from popmq_http2.server.addresses import CAUTIOUS_POINTS, FLOODS_MAX, Addresses, counted
from tests.http2.conftest import Echo
from tests.http2.sequences import call
from tests.http2.wire import Wire, Written


def goaway(written: list[Written]) -> tuple[int, bytes] | None:
    """Code and text of a GOAWAY."""
    found = [each.payload for each in written if each.kind == GOAWAY]
    return (U32.unpack_from(found[0], 4)[0], found[0][8:]) if found else None


def flood(wire: Wire) -> int:
    """Sends PINGs until the connection ends; how many."""
    sent = 0
    while not wire.closing:
        wire.feed(frame(PING, 0, 0, bytes(8)))
        sent += 1
    return sent


@pytest.mark.mechanism("H.12")
async def test_a_connection_above_the_number_of_its_address_is_refused_with_the_reason(echo: Echo) -> None:
    server = Server(echo.methods().get, Limits(connections_per_address=2))
    first, second, third = (Wire(server) for _ in range(3))
    code, text = goaway(third.read()) or (None, b"")
    assert (code, third.closing) == (ENHANCE_YOUR_CALM, True)
    assert b"may have 2 connections" in text
    assert not first.closing
    second.close()
    assert not Wire(server).closing, "the place of one that ended is free"


async def test_other_addresses_and_unix_sockets_are_not_counted_with_it(echo: Echo) -> None:
    server = Server(echo.methods().get, Limits(connections_per_address=1))
    Wire(server)
    assert Wire(server).closing
    assert not Wire(server, "10.0.0.9").closing
    assert not any(wire.closing for wire in [Wire(server, None), Wire(server, None)])


async def test_refused_connections_leave_nothing(echo: Echo) -> None:
    server = Server(echo.methods().get, Limits(connections_per_address=1))
    wires = [Wire(server) for _ in range(5)]
    for wire in wires:
        wire.close()
    assert not server.addresses._open
    assert not server._connections


@pytest.mark.mechanism("H.13")
async def test_an_address_starts_with_few_points_after_a_flood(echo: Echo) -> None:
    server = Server(echo.methods().get, Limits(budget=5_000, budget_per_s=1))
    floods = []
    for _ in range(3):
        wire = Wire(server)
        wire.feed(GREETING)
        floods.append(flood(wire))
    assert 4_900 < floods[0] <= 5_001
    assert max(floods[1:]) <= CAUTIOUS_POINTS + 1
    assert flood(Wire(server, "10.0.0.9")) < 2, "no preface: it ends by that, and is no flood"


async def test_an_honest_client_beside_a_flood_of_its_address_goes_on(echo: Echo) -> None:
    server = Server(echo.methods().get, Limits(budget=5_000, budget_per_s=1))
    attacker = Wire(server)
    attacker.feed(GREETING)
    flood(attacker)
    honest = Wire(server)
    honest.feed(GREETING)
    for number in range(1, 1_001, 2):
        honest.feed(call(number, method=b"say") + frame(DATA, END_STREAM, number, b"\0" + U32.pack(1) + b"x"))
        honest.feed(frame(PING, 0, 0, bytes(8)))
        for _ in range(3):
            await asyncio.sleep(0)
        honest.read()
    assert not honest.closing
    honest.close()


def test_a_flood_is_forgotten_after_the_time_in_which_a_budget_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("popmq_http2.server.addresses.monotonic", lambda: now)
    addresses = Addresses(Limits(budget=500, budget_per_s=100))
    addresses.flooded("10.0.0.1")
    now += 4.9
    assert addresses.points("10.0.0.1") == CAUTIOUS_POINTS
    now += 0.2
    assert addresses.points("10.0.0.1") == 500
    assert not addresses._floods


def test_floods_of_many_addresses_take_bounded_memory() -> None:
    addresses = Addresses(Limits())
    for number in range(FLOODS_MAX + 5):
        addresses.flooded(str(number))
    assert len(addresses._floods) == FLOODS_MAX
    assert addresses.points("0") == Limits().budget
    assert addresses.points(str(FLOODS_MAX)) == CAUTIOUS_POINTS


@pytest.mark.parametrize(
    ("host", "as_"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::"),
        ("2001:db8:1:2:bbbb::9", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
    ],
)
def test_ipv6_clients_are_counted_by_their_network(host: str, as_: str) -> None:
    assert counted(host) == as_
