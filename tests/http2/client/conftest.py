"""Both channels, the echo server on each transport, and servers that are played by a test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
import pytest_asyncio

from popmq_http2.client.target import Options
from tests.http2.client.callers import Caller, InLoop, InThreads, Make
from tests.http2.conftest import Echo, Serve

#: Short, so that tests of time-outs are quick.
QUICK = Options(connect_s=0.3, backoff_first_s=0.05, backoff_max_s=0.1, keepalive_s=0.05, keepalive_timeout_s=0.1)


@pytest_asyncio.fixture(params=[InThreads, InLoop], ids=["threads", "asyncio"])
async def caller(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Makes a channel of the kind under test, closed after the test."""
    made: list[Caller] = []

    def make(where: Any, *arguments: Any) -> Caller:
        made.append(request.param(f"127.0.0.1:{where}" if isinstance(where, int) else where, *arguments))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest_asyncio.fixture(params=["ours", "grpcio"])
async def echo_port(request: pytest.FixtureRequest, serve: Serve, echo: Echo) -> AsyncIterator[int]:
    """The echo server, on our transport and on grpcio's."""
    if request.param == "ours":
        yield (await serve())[1]
        return
    options = (("grpc.max_receive_message_length", 32 << 20),)
    server: Any = grpc.aio.server(handlers=[GrpcioEcho(echo)], options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield port
    await server.stop(0)


class GrpcioEcho(grpc.GenericRpcHandler):
    """The same methods on grpcio's server."""

    def __init__(self, echo: Echo) -> None:
        self._methods: dict[str, Any] = {
            "say": grpc.unary_unary_rpc_method_handler(self._say),
            "wait": grpc.unary_unary_rpc_method_handler(echo.wait),
            "fail": grpc.unary_unary_rpc_method_handler(self._fail),
            "many": grpc.unary_stream_rpc_method_handler(echo.many),
            "back": grpc.stream_stream_rpc_method_handler(self._back),
        }

    def service(self, details: Any) -> Any:
        return self._methods.get(details.method.rpartition("/")[2])

    async def _say(self, request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("seen-bin", b"\0\xff"), ("seen", "yes")))
        return request

    async def _fail(self, request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("why-bin", b"\x01"),))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "ßo not")
        return b""

    async def _back(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request


#: What a played server does with a connection.
Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest_asyncio.fixture
async def played() -> AsyncIterator[Callable[..., Awaitable[int]]]:
    """Opens a port whose connections are handled by a function each, in order; the last one takes all further ones."""
    servers: list[asyncio.Server] = []
    running: set[asyncio.Task[Any]] = set()

    async def start(*plays: Play, **options: Any) -> int:
        left = list(plays)

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            running.add(task)
            try:
                await (left.pop(0) if len(left) > 1 else left[0])(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                running.discard(task)
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0, **options)
        servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    yield start
    for server in servers:
        server.close()
    for task in list(running):
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
