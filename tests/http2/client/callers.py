"""One interface to three channels: for threads, for asyncio, and grpcio's as the reference."""

import asyncio
import ssl
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple, Protocol

import grpc

from popmq_http2 import Code, Metadata
from popmq_http2.client.aio import AsyncChannel
from popmq_http2.client.call import CallFailed
from popmq_http2.client.target import Options
from popmq_http2.client.threads import Channel


class Outcome(NamedTuple):
    """How a call ended, and its answers."""

    code: Code
    message: str = ""
    trailers: Metadata = ()
    answers: tuple[bytes, ...] = ()


class Caller(Protocol):
    async def unary(
        self, name: str, request: bytes, metadata: Metadata = (), timeout_s: float | None = None
    ) -> Outcome: ...

    async def stream(self, name: str, requests: list[bytes], one: bool = True) -> Outcome: ...

    async def close(self) -> None: ...


Make = Callable[..., Caller]


def path(name: str) -> str:
    return f"/t.Echo/{name}"


def failed(error: CallFailed, answers: tuple[bytes, ...] = ()) -> Outcome:
    return Outcome(error.code, error.message, tuple(sorted(error.trailers)), answers)


def begun(channel: Any, name: str, requests: list[bytes], one: bool) -> Any:
    """A stream whose requests are written. `one`: there is exactly one."""
    call = channel.stream(path(name), requests[0] if one else None)
    for request in [] if one else requests:
        call.write(request)
    return call


class Ours:
    """Either of our channels. Subclasses say how a call's answer, and the next of a stream, are waited for."""

    channel: Any

    async def _answer(self, call: Any) -> bytes:
        raise NotImplementedError

    async def _collect(self, call: Any, got: list[bytes], most: int | None) -> None:
        """Adds answers to `got`, at most `most`. Raises CallFailed."""
        raise NotImplementedError

    async def unary(
        self, name: str, request: bytes, metadata: Metadata = (), timeout_s: float | None = None
    ) -> Outcome:
        call = self.channel.unary(path(name), request, metadata, timeout_s)
        try:
            return Outcome(Code.OK, answers=(await self._answer(call),))
        except CallFailed as error:
            return failed(error)
        finally:
            call.cancel()

    async def stream(self, name: str, requests: list[bytes], one: bool = True) -> Outcome:
        call = begun(self.channel, name, requests, one)
        got: list[bytes] = []
        try:
            await self._collect(call, got, None if one else len(requests))
        except CallFailed as error:
            return failed(error, tuple(got))
        finally:
            call.close()
        return Outcome(Code.OK, answers=tuple(got))


class InThreads(Ours):
    """The channel for threads; each call waits in a thread."""

    def __init__(self, where: str, tls: ssl.SSLContext | None = None, options: Options | None = None) -> None:
        self.channel = Channel(where, tls, options)

    async def _answer(self, call: Any) -> bytes:
        return await asyncio.to_thread(call.result)

    async def _collect(self, call: Any, got: list[bytes], most: int | None) -> None:
        await asyncio.to_thread(lambda: got.extend(islice(call, most)))

    async def close(self) -> None:
        await asyncio.to_thread(self.channel.close)


class InLoop(Ours):
    """The channel for asyncio."""

    def __init__(self, where: str, tls: ssl.SSLContext | None = None, options: Options | None = None) -> None:
        self.channel = AsyncChannel(where, tls, options)

    async def _answer(self, call: Any) -> bytes:
        answer: bytes = await call.result()
        return answer

    async def _collect(self, call: Any, got: list[bytes], most: int | None) -> None:
        async for answer in call:
            got.append(answer)
            if len(got) == most:
                break

    async def close(self) -> None:
        await self.channel.close()


class Grpcio:
    """grpcio's client, as the oracle."""

    def __init__(self, where: str) -> None:
        options = (("grpc.max_receive_message_length", 32 << 20),)
        self._channel: Any = grpc.aio.insecure_channel(where, options)

    async def unary(
        self, name: str, request: bytes, metadata: Metadata = (), timeout_s: float | None = None
    ) -> Outcome:
        try:
            answer = await self._channel.unary_unary(path(name))(request, metadata=metadata, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return _refused(error)
        return Outcome(Code.OK, answers=(answer,))

    async def stream(self, name: str, requests: list[bytes], one: bool = True) -> Outcome:
        got: list[bytes] = []
        if one:
            call = self._channel.unary_stream(path(name))(requests[0])
        else:
            call = self._channel.stream_stream(path(name))(iter(requests))
        try:
            async for answer in call:
                got += [answer]
        except grpc.aio.AioRpcError as error:
            return _refused(error, tuple(got))
        return Outcome(Code.OK, answers=tuple(got))

    async def close(self) -> None:
        await self._channel.close()


def _refused(error: grpc.aio.AioRpcError, answers: tuple[bytes, ...] = ()) -> Outcome:
    trailers: Any = tuple(sorted(error.trailing_metadata()))
    return Outcome(Code(error.code().value[0]), error.details() or "", trailers, answers)
