"""Requests of which the rest does not come: who may hold how much memory with them, and for how long."""

import asyncio
from collections.abc import Callable

import pytest

from harness.attacks import GREETING, head
from popmq_http2 import Aborted, Call, Code, Limits, Server
from popmq_http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, U32, frame
from popmq_http2.hpack import Decoder, encode
from popmq_http2.server.server import STREAM_BYTES
from popmq_http2.server.streams import CALL_BYTES
from tests.http2.conftest import Echo
from tests.http2.wire import Wire

PIECE = 16_000
#: What all connections may hold, and what a request has to grow by from look to look, in these tests.
ALL, PROGRESS = 200_000, 1_000


def server(echo: Echo, check: Callable[[Call], None] | None = None) -> Server:
    return Server(echo.methods().get, Limits(requests_bytes=ALL, unproved_bytes=20_000, progress_bytes=PROGRESS), check)


class Client:
    """One connection; `ended`: the status of each call that has one."""

    def __init__(self, served: Server, host: str = "192.0.2.1") -> None:
        self.wire = Wire(served, host)
        self.wire.feed(GREETING)
        self.decoder = Decoder()
        self.ended: dict[int, int] = {}
        self.read()

    def begin(self, stream_id: int, method: str = "say", size: int = 100_000) -> None:
        """A call with the first bytes of its message, which count as some of its progress."""
        self.open(stream_id, method)
        self.wire.feed(frame(DATA, 0, stream_id, b"\0" + U32.pack(size)))

    def open(self, stream_id: int, method: str) -> None:
        self.wire.feed(frame(HEADERS, END_HEADERS, stream_id, head(b"/t.Echo/" + method.encode())))

    def open_large(self, stream_id: int, method: bytes = b"say", size: int = 10_000, flags: int = 0) -> None:
        """A call with large headers, which differ from those of the others."""
        block = head(b"/t.Echo/" + method) + encode([(b"x-large", b"%d " % stream_id + b"x" * size)])
        self.wire.feed(frame(HEADERS, END_HEADERS | flags, stream_id, block))
        self.read()

    def more(self, stream_id: int, size: int, flags: int = 0) -> None:
        for at in range(0, size, PIECE):
            last = flags if at + PIECE >= size else 0
            self.wire.feed(frame(DATA, last, stream_id, bytes(min(PIECE, size - at))))
        self.read()

    def read(self) -> None:
        for each in self.wire.read():
            if each.kind == HEADERS:
                found = dict(self.decoder.decode(each.payload, 1 << 16))
                if b"grpc-status" in found:
                    self.ended[each.stream_id] = int(found[b"grpc-status"])

    def look(self) -> dict[int, int]:
        """What the timer of the connection does; the calls that have ended since."""
        self.ended.clear()
        self.wire.connection._look()
        self.read()
        return dict(self.ended)


async def answer(client: Client, stream_id: int) -> int:
    while stream_id not in client.ended:
        await asyncio.sleep(0)
        client.read()
    return client.ended[stream_id]


# ── How much ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("H.29")
async def test_a_client_that_fills_the_memory_for_requests_loses_it_to_another_address(echo: Echo) -> None:
    served = server(echo)
    greedy, other = Client(served), Client(served, "192.0.2.2")
    for number in (1, 3, 5):
        greedy.begin(number, size=64_000)
        greedy.more(number, 62_000)
    other.begin(1, size=20_000)
    other.more(1, 20_000, END_STREAM)
    assert await answer(other, 1) == Code.OK
    greedy.read()
    assert greedy.ended == dict.fromkeys([1, 3], Code.RESOURCE_EXHAUSTED), "the largest, until half of it is left"
    greedy.more(5, 2_000, END_STREAM)
    assert await answer(greedy, 5) == Code.OK


@pytest.mark.mechanism("H.29")
async def test_an_address_pays_for_its_connections_together(echo: Echo) -> None:
    served = server(echo)
    greedy, other = [Client(served) for _ in range(4)], Client(served, "192.0.2.2")
    other.begin(1, size=60_000)
    other.more(1, 50_000)
    for size, client in enumerate(greedy):
        client.begin(1)
        client.more(1, 35_000 + size)
    other.more(1, 10_000, END_STREAM)
    assert await answer(other, 1) == Code.OK, "it held more than any other connection, and less than the other address"
    for client in greedy:
        client.read()
    assert [client.ended for client in greedy] == [{}, {}, {}, {1: Code.RESOURCE_EXHAUSTED}]


async def test_a_client_that_holds_most_of_the_memory_itself_is_refused(echo: Echo) -> None:
    served = server(echo)
    greedy, other = Client(served), Client(served, "192.0.2.2")
    other.begin(1)
    greedy.begin(1, size=ALL * 2)
    greedy.more(1, ALL)
    assert (greedy.ended, other.ended) == ({1: Code.RESOURCE_EXHAUSTED}, {})
    assert served.buffered.bytes == 5 + CALL_BYTES, "the other one's call, and what it sent"


async def test_messages_that_a_handler_does_not_take_make_room_too(echo: Echo) -> None:
    served = server(echo)
    greedy, other = Client(served), Client(served, "192.0.2.2")
    greedy.begin(1, "deaf", size=190_000)
    greedy.more(1, 190_000)
    await echo.entered.acquire()
    other.begin(1, size=20_000)
    other.more(1, 20_000, END_STREAM)
    assert await answer(other, 1) == Code.OK
    greedy.read()
    assert greedy.ended == {1: Code.RESOURCE_EXHAUSTED}
    await echo.cancelled.acquire()


async def test_large_headers_of_calls_that_go_on_count_until_their_ends(echo: Echo) -> None:
    served = server(echo)
    greedy, other = Client(served), Client(served, "192.0.2.2")
    for number in range(1, 61, 2):
        greedy.open_large(number)
        assert served.buffered.bytes <= ALL
    assert greedy.ended
    assert set(greedy.ended.values()) == {Code.RESOURCE_EXHAUSTED}
    other.begin(1, size=50_000)
    other.more(1, 50_000, END_STREAM)
    assert await answer(other, 1) == Code.OK
    greedy.wire.close()
    assert served.buffered.bytes == 0


async def test_large_headers_of_a_call_that_waits_make_room_too(echo: Echo) -> None:
    served = server(echo)
    greedy, other = Client(served), Client(served, "192.0.2.2")
    for number in range(1, 37, 2):
        greedy.open_large(number, b"wait")
        greedy.wire.feed(frame(DATA, END_STREAM, number, bytes(5)))
        await echo.entered.acquire()
    other.begin(1, size=50_000)
    other.more(1, 50_000, END_STREAM)
    assert await answer(other, 1) == Code.OK
    greedy.read()
    assert set(greedy.ended.values()) == {Code.RESOURCE_EXHAUSTED}
    await echo.cancelled.acquire()


@pytest.mark.mechanism("H.34")
async def test_open_calls_count_until_their_ends_and_equal_headers_count_once(echo: Echo) -> None:
    served = server(echo)
    client = Client(served)
    client.open(1, "say")
    first = served.buffered.bytes
    for number in range(3, 101, 2):
        client.open(number, "say")
    assert served.buffered.bytes == first + 49 * CALL_BYTES
    client.more(1, 5, END_STREAM)
    assert await answer(client, 1) == Code.OK
    assert served.buffered.bytes == 49 * CALL_BYTES
    client.wire.close()
    assert served.buffered.bytes == 0


@pytest.mark.mechanism("H.34")
async def test_an_open_stream_counts_with_its_handler(echo: Echo) -> None:
    served = server(echo)
    client = Client(served)
    client.open(1, "deaf")
    first = served.buffered.bytes
    client.open(3, "deaf")
    assert served.buffered.bytes == first + CALL_BYTES + STREAM_BYTES


@pytest.mark.mechanism("H.34")
@pytest.mark.parametrize("method", ["say", "deaf"])
async def test_calls_that_are_only_opened_are_bounded_on_all_connections_of_an_address(echo: Echo, method: str) -> None:
    served = server(echo)
    greedy, other = [Client(served) for _ in range(10)], Client(served, "192.0.2.2")
    other.open(1, "say")
    for number in range(1, 101, 2):
        for client in greedy:
            client.open(number, method)
            assert served.buffered.bytes <= ALL + 2 * STREAM_BYTES
    for client in greedy:
        client.read()
        assert client.ended
        assert set(client.ended.values()) == {Code.RESOURCE_EXHAUSTED}
    other.more(1, 5, END_STREAM)
    assert await answer(other, 1) == Code.OK


@pytest.mark.mechanism("H.34")
async def test_a_client_that_reads_no_ends_of_its_calls_loses_its_connection(echo: Echo) -> None:
    """Else the calls that the server has ended would stay: their ends are not written."""
    served = server(echo)
    greedy, other = Client(served), Client(served, "192.0.2.2")
    greedy.wire.connection.pause_writing()
    for number in range(1, 1001, 2):
        greedy.open(number, "say")
        assert served.buffered.bytes <= ALL
        if greedy.wire.closing:
            break
    assert greedy.wire.closing
    other.begin(1, size=50_000)
    other.more(1, 50_000, END_STREAM)
    assert await answer(other, 1) == Code.OK


# ── How long ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("H.30")
async def test_a_request_that_does_not_grow_from_look_to_look_is_ended(echo: Echo) -> None:
    served = server(echo)
    client = Client(served)
    client.begin(1)
    client.more(1, 5_000)
    client.open(3, "say")
    assert client.look() == {}
    client.more(1, PROGRESS - 1)
    assert client.look() == dict.fromkeys([1, 3], Code.DEADLINE_EXCEEDED)
    assert served.buffered.bytes == 0


@pytest.mark.mechanism("H.30")
async def test_a_slow_request_that_grows_steadily_is_taken_whole(echo: Echo) -> None:
    limits = Limits()
    client = Client(Server(echo.methods().get))
    client.begin(1, "wait", limits.message_bytes)
    for _ in range(limits.message_bytes // limits.progress_bytes - 1):
        client.more(1, limits.progress_bytes)
        assert client.look() == {}
    client.more(1, limits.progress_bytes, END_STREAM)
    await echo.entered.acquire()
    assert client.ended == {}


@pytest.mark.parametrize(
    ("method", "sent", "stays"), [("count", 5, True), ("count", 4, False), ("deaf", 7, True), ("count", 0, False)]
)
async def test_a_stream_may_rest_between_messages_and_not_in_one_or_before_the_first(
    echo: Echo, method: str, sent: int, stays: bool
) -> None:
    """A handler that takes no messages keeps its client from sending more, so that is not the client's fault."""
    client = Client(server(echo))
    client.open(1, method)
    if sent:
        client.wire.feed(frame(DATA, 0, 1, bytes(sent)))
    await asyncio.sleep(0)
    looks = [client.look() for _ in range(3)]
    assert (looks == [{}] * 3) is stays


# ── Whose ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("H.31")
async def test_a_caller_that_proves_nothing_is_refused_before_its_request_is_large(echo: Echo) -> None:
    asked = list[str]()

    def check(call: Call) -> None:
        asked.append(call.path)
        if call.path == "/t.Echo/wait":
            raise Aborted(Code.UNAUTHENTICATED, "no key", (("why", "none"),))

    served = server(echo, check)
    stranger, known = Client(served), Client(served)
    stranger.begin(1, "wait")
    stranger.more(1, 18_000)
    assert (asked, stranger.ended) == ([], {}), "small requests are asked about when they are whole"
    stranger.more(1, 3_000)
    stranger.read()
    assert (stranger.ended, served.buffered.bytes) == ({1: Code.UNAUTHENTICATED}, 0)
    known.begin(1, size=50_000)
    known.more(1, 50_000, END_STREAM)
    assert await answer(known, 1) == Code.OK
    assert asked == ["/t.Echo/wait", "/t.Echo/say"], "once for each call"


def nobody(call: Call) -> None:
    """A check that no caller passes."""
    raise Aborted(Code.UNAUTHENTICATED, "no key")


async def test_large_headers_of_a_caller_that_proves_nothing_are_refused(echo: Echo) -> None:
    served = server(echo, nobody)
    stranger = Client(served)
    for number in (1, 3, 5, 7):
        stranger.open_large(number)
    assert stranger.ended == dict.fromkeys([3, 5, 7], Code.UNAUTHENTICATED)
    assert served.buffered.bytes < 20_000


async def test_many_small_requests_of_a_caller_that_proves_nothing_are_refused_too(echo: Echo) -> None:
    served = server(echo, nobody)
    stranger = Client(served)
    for number in range(1, 101, 2):
        stranger.begin(number)
        stranger.more(number, 1_000)
    assert len(stranger.ended) == 43
    assert served.buffered.bytes < 20_000


async def test_many_open_calls_of_a_caller_that_proves_nothing_are_refused(echo: Echo) -> None:
    """They have hardly a byte each and cost a kilobyte, and a silent stream may last as long as its client likes."""

    client = Client(Server(echo.methods().get, Limits(unproved_bytes=10 * CALL_BYTES), nobody))
    for number in range(1, 101, 2):
        client.open(number, "say")
    client.read()
    assert client.ended == dict.fromkeys(range(21, 101, 2), Code.UNAUTHENTICATED)
