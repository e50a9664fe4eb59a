"""An echo server on a real port, in the test's own event loop, and a client that sends frames."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from popmq_http2 import (
    Arrival,
    Call,
    Code,
    Limits,
    Method,
    Server,
    bidirectional,
    client_streaming,
    server_streaming,
    unary,
)
from tests.http2.frame_client import FrameClient


class Echo:
    """The methods of the echo server, and records of their calls for tests."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.entered = asyncio.Semaphore(0)
        self.cancelled = asyncio.Semaphore(0)
        self.ended: list[str] = []
        self.arrivals: asyncio.Queue[tuple[bytes, Arrival]] = asyncio.Queue()
        self.times = 1
        self.metadata: dict[str, str | bytes] = {}

    async def say(self, request: bytes, call: Call) -> bytes:
        self.metadata = dict(call.invocation_metadata())
        call.add_done_callback(lambda call: self.ended.append(call.path))
        call.set_trailing_metadata((("seen-bin", b"\0\xff"), ("seen", "yes")))
        return request

    async def wait(self, request: bytes, call: Call) -> bytes:
        self.entered.release()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.release()
            raise
        return request

    async def fail(self, request: bytes, call: Call) -> bytes:
        if request == b"metadata":
            call.set_trailing_metadata((("Capital", "letters"),))
            return request
        if request:
            await call.abort(Code.FAILED_PRECONDITION, "ßo not", (("why-bin", b"\x01"),))
        raise ValueError("a bug")

    async def many(self, request: bytes, call: Call) -> AsyncIterator[bytes]:
        for number in range(34):
            yield b"%d " % number + request

    async def told(self, request: bytes, call: Call) -> None:
        await call.write(request * self.times)
        call.add_arrival_callback(lambda arrival: self.arrivals.put_nowait((request[:1], arrival)))

    async def endless(self, request: bytes, call: Call) -> None:
        try:
            while True:
                await call.write(request)
                self.entered.release()
                await asyncio.sleep(0)
        finally:
            self.cancelled.release()

    async def count(self, call: Call) -> bytes:
        return b"%d" % len([message async for message in call])

    async def back(self, call: Call) -> AsyncIterator[bytes]:
        await call.send_initial_metadata((("hello", "there"),))
        async for message in call:
            yield message

    async def talk(self, call: Call) -> None:
        """Reads in one task and writes in another, as a handler does that also sends what nobody asked for."""
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen() -> None:
            async for message in call:
                heard.put_nowait(message)

        listening = asyncio.create_task(listen())
        try:
            while (message := await heard.get()) != b"bye":
                await call.write(message * self.times)
        finally:
            listening.cancel()

    async def deaf(self, call: Call) -> bytes:
        return await self.wait(b"", call)

    def methods(self) -> dict[str, Method]:
        one = {name: unary(getattr(self, name)) for name in ("say", "wait", "fail")}
        many = {name: server_streaming(getattr(self, name)) for name in ("many", "told", "endless")}
        into = {name: client_streaming(getattr(self, name)) for name in ("count", "deaf")}
        return {f"/t.Echo/{name}": method for name, method in (one | many | into).items()} | {
            "/t.Echo/back": bidirectional(self.back),
            "/t.Echo/talk": bidirectional(self.talk),
        }


@pytest_asyncio.fixture
async def echo() -> Echo:
    return Echo()


Serve = Callable[..., Awaitable[tuple[Server, int]]]


@pytest_asyncio.fixture
async def serve(echo: Echo) -> AsyncIterator[Serve]:
    """Starts a server with some limits; (server, port)."""
    servers: list[Server] = []

    async def start(**limits: float) -> tuple[Server, int]:
        server = Server(echo.methods().get, Limits(**limits))  # type: ignore[arg-type]
        servers.append(server)
        return server, await server.listen("127.0.0.1", 0)

    yield start
    for server in servers:
        await server.stop(0)


@pytest_asyncio.fixture
async def connect(serve: Serve) -> AsyncIterator[Callable[..., Awaitable[FrameClient]]]:
    """A client of frames to a new server with some limits, past its greeting."""
    clients: list[FrameClient] = []

    async def start(**limits: float) -> FrameClient:
        _, port = await serve(**limits)
        client = await FrameClient.connect(port)
        clients.append(client)
        await client.greet()
        return client

    yield start
    for client in clients:
        client.close()
