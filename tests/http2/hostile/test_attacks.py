"""Each attack on one connection with the default limits: when the connection ends, and what it holds until then."""

import asyncio
import gc
import tracemalloc
import weakref

import pytest

from harness.attacks import ATTACKS, GREETING
from popmq_http2 import Limits, Server
from popmq_http2.frames import INTERNAL_ERROR, PING, U32, frame
from tests.http2.conftest import Echo
from tests.http2.wire import Wire, Written, rejects

MIB = 1 << 20
#: After how many pieces the server ends the connection. What costs a point each may use up the budget of 10,000.
ENDS = {
    "rapid_reset": 10_001,
    "made_to_reset": 10_001,
    "continuations": 17,
    "hpack_bomb": 2,
    "header_flood": 286,
    "huffman_flood": 43,
    "pings": 10_001,
    "empty_settings": 10_001,
    "full_settings": 1_100,
    "priorities": 10_001,
    "empty_data": 10_001,
    "tiny_data": 10_001,
    "byte_windows": 10_020,
    "giant_frames": 2,
    "compression_bomb": 3,
    "deflate_bomb": 3,
}
#: Attacks that are calls like any other: nothing ends them, and nothing of them is kept.
GO_ON = {"no_windows": 2_000, "compression_bomb": 10, "unfinished": 2_000}
#: Answers that a client does not take.
UNSENT_BYTES = 8 * MIB
#: What open calls may hold: an attack that may hold more would take long.
REQUESTS_BYTES = {"unfinished": 4 * MIB}
#: All that a connection may hold at a time: these and its calls; three messages (20 MiB), which use up its budget, and
#: the buffer that one grew from.
HELD_BYTES = {"no_windows": 16 * MIB, "compression_bomb": 100 * MIB, "unfinished": 16 * MIB}


def test_every_attack_has_its_bound() -> None:
    assert set(ENDS) | set(GO_ON) == set(ATTACKS)


@pytest.mark.mechanism("H.01", "H.03", "H.04", "H.06", "H.23", "H.33")
@pytest.mark.parametrize("name", ENDS)
async def test_an_attack_ends_its_connection_after_a_counted_number_of_pieces(echo: Echo, name: str) -> None:
    wire = Wire(Server(echo.methods().get, Limits(budget_per_s=0)))
    wire.feed(GREETING)
    wire.read()
    path = b"/t.Echo/say" if name == "byte_windows" else b"/t.Echo/deaf"
    fed, written = 0, list[Written]()
    for piece in ATTACKS[name](path):
        wire.feed(piece)
        await asyncio.sleep(0)
        fed += 1
        written += wire.read()
        if wire.closing or fed > ENDS[name]:
            break
    assert wire.closing
    assert rejects(written), "the client learns why"
    assert U32.unpack_from(written[-1].payload, 4)[0] != INTERNAL_ERROR
    assert fed <= ENDS[name]


@pytest.mark.mechanism("H.11")
@pytest.mark.slow
@pytest.mark.parametrize("name", GO_ON)
async def test_an_attack_by_calls_like_any_other_holds_a_bounded_number_of_bytes(echo: Echo, name: str) -> None:
    requests_bytes = REQUESTS_BYTES.get(name, Limits().requests_bytes)
    wire = Wire(Server(echo.methods().get, Limits(unsent_bytes=UNSENT_BYTES, requests_bytes=requests_bytes)))
    wire.feed(GREETING)
    tracemalloc.start()
    try:
        for number, piece in enumerate(ATTACKS[name](b"/t.Echo/say")):
            wire.feed(piece)
            if number % 50 == 0:
                await asyncio.sleep(0)
                wire.read()
            if wire.closing or number > GO_ON[name]:
                break
        assert tracemalloc.get_traced_memory()[1] < HELD_BYTES[name]
    finally:
        tracemalloc.stop()
    wire.close()


@pytest.mark.slow
async def test_five_thousand_connections_cost_little_each_and_leave_nothing(echo: Echo) -> None:
    server = Server(echo.methods().get, Limits(connections_per_address=5_000))
    tracemalloc.start()
    try:
        wires = [Wire(server) for _ in range(5_000)]
        for wire in wires:
            wire.feed(GREETING)
            wire.read()
        held = tracemalloc.get_traced_memory()[0]
        for wire in wires:
            wire.close()
    finally:
        tracemalloc.stop()
    assert held / len(wires) < 12_000, "bytes of a connection that is open and asks for nothing"
    assert not server._connections


@pytest.mark.mechanism("H.28")
async def test_connections_that_the_server_ended_leave_nothing_while_floods_go_on(echo: Echo) -> None:
    """A flood connects again thousands of times a second; what each one left for some seconds would add up."""
    server = Server(echo.methods().get)
    ended = []
    for _ in range(100):
        wire = Wire(server)
        wire.feed(GREETING + frame(PING, 0, 1, bytes(8)))
        assert wire.closing
        ended.append(weakref.ref(wire.connection))
    del wire
    await asyncio.sleep(0)  # the end of this turn, at which answers leave
    gc.collect()
    assert not [1 for connection in ended if connection() is not None]
