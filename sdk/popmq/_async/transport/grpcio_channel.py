"""The channel of an AsyncClient over grpcio. The twin of popmq._sync.transport.grpcio_channel."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from popmq._async.concurrency import Stop
from popmq._transport.call_retries import Stopped
from popmq._transport.connection import Connection
from popmq._transport.grpcio import as_message, credentials, under_way
from popmq.config import CHANNEL_OPTIONS
from popmq.errors import ClientClosed
from popmq_proto.v1 import popmq_pb2_grpc as stubs


class GrpcioChannel:
    """Calls methods by name, "Broker.Send". It connects at the first call, in that call's event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: grpc.aio.Channel | None = None
        self._methods: dict[str, Any] = {}
        self._closed = False

    async def unary(self, method: str, request: Any, timeout: float, stop: Stop | None = None) -> Any:
        with under_way():
            return await self._unary(method, as_message(request), timeout, stop)

    async def _unary(self, method: str, request: Any, timeout: float, stop: Stop | None) -> Any:
        """The answer within `timeout` seconds. Raises CallFailed; Stopped when `stop` was set; ClientClosed."""
        if self._closed:
            raise ClientClosed("this client is closed")
        call = (self._methods.get(method) or self._open(method))(
            request, timeout=timeout, metadata=self._connection.headers()
        )
        unwatch = stop.watch(call.cancel) if stop else None
        try:
            return await call
        except asyncio.CancelledError:
            # grpc.aio reports its own cancelling like that of the task: tell them apart, or a task ends unasked.
            if stop and stop.is_set():
                raise Stopped from None
            if self._closed:
                raise ClientClosed("this client was closed while a call was under way") from None
            raise
        finally:
            if unwatch:
                unwatch()

    async def converse(self, method: str, hello: Any, answer: Callable[[Any], Awaitable[Any]], stop: Stop) -> None:
        with under_way():
            await self._converse(method, hello, answer, stop)

    async def _converse(self, method: str, hello: Any, answer: Callable[[Any], Awaitable[Any]], stop: Stop) -> None:
        """A stream of both sides: says `hello`, then what `answer` makes of each response, if anything; until it ends.

        Raises as `unary` does.
        """
        if self._closed:
            raise ClientClosed("this client is closed")
        call = (self._methods.get(method) or self._open(method))(metadata=self._connection.headers())
        unwatch = stop.watch(call.cancel)
        try:
            await call.write(hello)
            while (response := await call.read()) is not grpc.aio.EOF:
                reply = await answer(response)
                if reply is not None:
                    await call.write(reply)
        except asyncio.InvalidStateError:
            return  # it ended while we wrote: the next call opens another, and gets the reason
        except asyncio.CancelledError:
            if stop.is_set():
                raise Stopped from None
            if self._closed:
                raise ClientClosed("this client was closed while a stream was open") from None
            raise
        finally:
            unwatch()
            call.cancel()

    async def listen(self, method: str, request: Any, take: Callable[[Any], None]) -> None:
        with under_way():
            await self._listen(method, request, take)

    async def _listen(self, method: str, request: Any, take: Callable[[Any], None]) -> None:
        """A stream of responses: `take` gets each of them, until it ends. Raises CallFailed; ClientClosed."""
        if self._closed:
            raise ClientClosed("this client is closed")
        call = (self._methods.get(method) or self._open(method))(request, metadata=self._connection.headers())
        try:
            async for response in call:
                take(response)
        except asyncio.CancelledError:
            if self._closed:
                raise ClientClosed("this client was closed while a stream was open") from None
            raise
        finally:
            call.cancel()

    async def close(self) -> None:
        """Cancels what is under way."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    def _open(self, method: str) -> Any:
        if self._channel is None:
            where, trusted = self._connection.endpoint, credentials(self._connection)
            if trusted is None:
                self._channel = grpc.aio.insecure_channel(where, options=CHANNEL_OPTIONS)
            else:
                self._channel = grpc.aio.secure_channel(where, trusted, options=CHANNEL_OPTIONS)
        service, name = method.split(".")
        stub = getattr(stubs, f"{service}Stub")(self._channel)
        self._methods[method] = getattr(stub, name)
        return self._methods[method]
