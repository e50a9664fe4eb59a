"""The channels under one face: for threads, for asyncio, and grpcio's as the one to compare with."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import grpc

from popmq_http2 import Code, Metadata
from popmq_http2.client.aio import AsyncChannel
from popmq_http2.client.call import CallFailed
from popmq_http2.client.target import Options
from popmq_http2.client.threads import Channel


class Outcome(NamedTuple):
    """How a call ended, and what came."""

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


class InThreads:
    """The channel for threads; each call waits in a thread."""

    def __init__(self, where: str, tls: ssl.SSLContext | None = None, options: Options | None = None) -> None:
        self.channel = Channel(where, tls, options)

    async def unary(
        self, name: str, request: bytes, metadata: Metadata = (), timeout_s: float | None = None
    ) -> Outcome:
        call = self.channel.unary(path(name), request, metadata, timeout_s)
        try:
            return Outcome(Code.OK, answers=(await asyncio.to_thread(call.result),))
        except CallFailed as error:
            return failed(error)
        finally:
            call.cancel()

    async def stream(self, name: str, requests: list[bytes], one: bool = True) -> Outcome:
        return await asyncio.to_thread(self._stream, name, requests, one)

    def _stream(self, name: str, requests: list[bytes], one: bool) -> Outcome:
        call = self.channel.stream(path(name), requests[0] if one else None)
        for request in [] if one else requests:
            call.write(request)
        got: list[bytes] = []
        try:
            for answer in call:
                got.append(answer)
                if not one and len(got) == len(requests):
                    break
        except CallFailed as error:
            return failed(error, tuple(got))
        finally:
            call.close()
        return Outcome(Code.OK, answers=tuple(got))

    async def close(self) -> None:
        await asyncio.to_thread(self.channel.close)


class InLoop:
    """The channel for asyncio."""

    def __init__(self, where: str, tls: ssl.SSLContext | None = None, options: Options | None = None) -> None:
        self.channel = AsyncChannel(where, tls, options)

    async def unary(
        self, name: str, request: bytes, metadata: Metadata = (), timeout_s: float | None = None
    ) -> Outcome:
        call = self.channel.unary(path(name), request, metadata, timeout_s)
        try:
            return Outcome(Code.OK, answers=(await call.result(),))
        except CallFailed as error:
            return failed(error)

    async def stream(self, name: str, requests: list[bytes], one: bool = True) -> Outcome:
        call = self.channel.stream(path(name), requests[0] if one else None)
        for request in [] if one else requests:
            call.write(request)
        got: list[bytes] = []
        try:
            async for answer in call:
                got.append(answer)
                if not one and len(got) == len(requests):
                    break
        except CallFailed as error:
            return failed(error, tuple(got))
        finally:
            call.close()
        return Outcome(Code.OK, answers=tuple(got))

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
