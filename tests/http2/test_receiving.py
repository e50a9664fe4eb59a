"""Connections share the memory that sockets are read into."""

from harness.attacks import GREETING, head
from popmq_http2 import Server, unary
from popmq_http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame
from tests.http2.conftest import Echo
from tests.http2.wire import Wire


async def test_a_request_of_two_reads_is_whole_whatever_was_read_between_them() -> None:
    server = Server({"/test.Echo/Say": unary(Echo().say)}.get)
    bodies = [letter * 3000 for letter in (b"a", b"b")]
    wires = [Wire(server) for _ in bodies]
    requests = []
    for body in bodies:
        data = b"\0" + len(body).to_bytes(4, "big") + body
        headers = frame(HEADERS, END_HEADERS, 1, head(b"/test.Echo/Say"))
        requests.append(GREETING + headers + frame(DATA, END_STREAM, 1, data))
    for part in (slice(1500), slice(1500, None)):
        for wire, request in zip(wires, requests, strict=True):
            wire.feed(request[part])
    await server.stop(grace_s=5)
    assert [body in wire.raw for wire, body in zip(wires, bodies, strict=True)] == [True, True]
