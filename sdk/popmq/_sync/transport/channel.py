"""The connection of a Client. The twin of popmq._async.transport.channel."""

from collections.abc import Callable
from typing import Any, Protocol

from popmq._sync.concurrency import Lock, Stop
from popmq._transport.call_retries import Stopped
from popmq._transport.connection import Connection
from popmq._transport.rpcs import rpc
from popmq.errors import ClientClosed
from popmq_http2 import Code
from popmq_http2.client.call import CallFailed
from popmq_http2.client.threads import Channel as Http2


class Channel(Protocol):
    """Calls methods by name, "Broker.Send". It connects at the first call."""

    def unary(self, method: str, request: Any, timeout: float, stop: Stop | None = None) -> Any:
        """The answer within `timeout` seconds. Raises CallFailed; Stopped when `stop` was set; ClientClosed."""

    def converse(self, method: str, hello: Any, answer: Callable[[Any], Any], stop: Stop) -> None:
        """A stream of both sides: says `hello`, then what `answer` makes of each response, if anything; until it ends.

        Raises as `unary` does.
        """

    def listen(self, method: str, request: Any, take: Callable[[Any], None]) -> None:
        """A stream of responses: `take` gets each of them, until it ends. Raises CallFailed; ClientClosed."""

    def close(self) -> None:
        """Cancels what is under way."""


def channel(connection: Connection) -> Channel:
    """The channel of the connection's transport. Only grpcio's imports gRPC, and raises MissingLibrary without it."""
    if connection.transport == "python":
        return PythonChannel(connection)
    from popmq._transport import fork  # noqa: F401 - imports gRPC with the settings that a client needs

    # Before all others that import gRPC: it reads them while it is imported.
    # isort: split
    from popmq._sync.transport.grpcio_channel import GrpcioChannel

    return GrpcioChannel(connection)


class PythonChannel:
    """Over popmq_http2."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: Http2 | None = None
        self._opening = Lock()
        self._closed = False

    def unary(self, method: str, request: Any, timeout: float, stop: Stop | None = None) -> Any:
        path, read = rpc(method)
        headers = self._connection.headers() or ()
        call = self._open().unary(path, request.SerializeToString(), headers, timeout)
        unwatch = stop.watch(call.cancel) if stop is not None else None
        try:
            return read(call.result())
        except CallFailed as error:
            raise self._ended(error, stop) from None
        finally:
            if unwatch is not None:
                unwatch()

    def converse(self, method: str, hello: Any, answer: Callable[[Any], Any], stop: Stop) -> None:
        path, read = rpc(method)
        call = self._open().stream(path, None, self._connection.headers() or ())
        unwatch = stop.watch(call.cancel)
        try:
            call.write(hello.SerializeToString())
            for raw in call:
                reply = answer(read(raw))
                if reply is not None:
                    call.write(reply.SerializeToString())
        except CallFailed as error:
            raise self._ended(error, stop) from None
        finally:
            unwatch()
            call.close()

    def listen(self, method: str, request: Any, take: Callable[[Any], None]) -> None:
        path, read = rpc(method)
        call = self._open().stream(path, request.SerializeToString(), self._connection.headers() or ())
        try:
            for raw in call:
                take(read(raw))
        except CallFailed as error:
            raise self._ended(error, None) from None
        finally:
            call.close()

    def close(self) -> None:
        self._closed = True
        with self._opening:
            if self._channel is not None:
                self._channel.close()

    def _open(self) -> Http2:
        if self._closed:
            raise ClientClosed("this client is closed")
        if self._channel is None:
            with self._opening:
                if self._channel is None:
                    self._channel = Http2(self._connection.endpoint, self._connection.tls_context())
        return self._channel

    def _ended(self, error: CallFailed, stop: Stop | None) -> Exception:
        """What a failed call means to its caller: we may have cancelled it."""
        if stop is not None and stop.is_set() and error.code is Code.CANCELLED:
            return Stopped()
        if self._closed:
            return ClientClosed("this client was closed while a call was under way")
        return error
