"""The HTTP port without a socket, and the JSON of requests.

Whatever bytes come, a connection answers with HTTP or says nothing, and is over afterwards; JSON is a request's, or it
is refused.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from popmq_http2 import Limits
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.errors import Refused
from popmq_server.protocols.connect import json_text
from popmq_server.protocols.connect.http1 import Http1
from popmq_server.protocols.connect.port import HttpPort
from popmq_server.protocols.transport import ServedMethod
from tests.fuzz.target import Running, errors

SERVICE = "popmq.v1.Broker"
PATH = f"/{SERVICE}/Send"
SENT = (
    b'{"topic": "orders", "messages": [{"body": "aGk=", "keys": ["k"], "properties": {"a": "b"}, "delayMs": "5"}], '
    b'"producer_id": "p", "requestNumber": 1}'
)
#: Chunks of one byte after those of SENT, as white space is in JSON.
CHUNKS = 100
#: Turns of the event loop after which a call has been answered.
TURNS = 8


class Pipe:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written, self.closed = b"", False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 50_000) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@contextmanager
def requests() -> Iterator[Running]:
    """The first byte says where the bytes are cut in two; the rest is what a client sends."""
    loop = asyncio.new_event_loop()
    asked = list[bytes]()

    async def echo(raw: bytes, _: object) -> bytes:
        asked.append(raw)
        return b""

    async def port_of() -> HttpPort:
        made = HttpPort(None, Limits(), ["https://shop.example"])
        methods = pb.DESCRIPTOR.services_by_name["Broker"].methods_by_name
        made.register(SERVICE, {name: ServedMethod(echo) for name in methods}, methods)
        return made

    async def connection_with(raw: bytes) -> None:
        pipe, cut = Pipe(), raw[0]
        connection = Http1(port)
        connection.connection_made(pipe)  # type: ignore[arg-type]
        for piece in (raw[1 : cut + 1], raw[cut + 1 :]):
            if piece and not pipe.closed:
                connection.data_received(piece)
                for _ in range(TURNS):
                    await asyncio.sleep(0)
        connection.connection_lost(None)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not pipe.written or pipe.written.startswith(b"HTTP/1.1 "), pipe.written
        assert asyncio.all_tasks() == {asyncio.current_task()}

    port = loop.run_until_complete(port_of())
    with errors("popmq", "asyncio") as logged:

        def run(raw: bytes) -> None:
            if raw:
                loop.run_until_complete(connection_with(raw))
                logged.check()

        begin = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        whole = begin.encode() + b"content-length: %d\r\n\r\n" % len(SENT) + SENT
        chunked = begin.encode() + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % len(SENT) + SENT + b"\r\n0\r\n\r\n"
        # More chunks than one turn of the event loop takes.
        pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in SENT + b" " * CHUNKS)
        tiny = begin.encode() + b"transfer-encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"
        read = f"GET /{SERVICE}/Peek?connect=v1&encoding=json&message=%7B%7D HTTP/1.1\r\nhost: [::1]\r\n\r\n".encode()
        page = f"OPTIONS {PATH} HTTP/1.1\r\nhost: localhost\r\norigin: https://shop.example\r\n\r\n".encode()
        head = f"HEAD {PATH} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        yield Running(run, [b"\x20" + seed for seed in (whole, chunked, tiny, read, page, head + read, whole + read)])
    loop.close()


@contextmanager
def json() -> Iterator[Running]:
    """A request that is read has the same bytes again when it is written and read once more."""
    kinds = (pb.SendRequest, pb.PopRequest, pb.CreateGroupRequest, pb.SettleRequest)

    def run(raw: bytes) -> None:
        if not raw:
            return
        kind = kinds[raw[0] % len(kinds)]
        try:
            encoded = json_text.encoded(kind, raw[1:])
        except Refused:
            return
        assert kind.FromString(json_text.encoded(kind, json_text.decoded(kind, encoded))) == kind.FromString(encoded)

    yield Running(
        run, [b"\0" + SENT, b'\1{"filter": {"tag": "a"}, "queues": [1], "token": {"part": 3}}', b"\2{}", b"\3{}"]
    )
