"""The channel of a Client over grpcio. The twin of popmq._async.transport.grpcio_channel."""

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

import grpc

from popmq._sync.concurrency import STOP_S_MAX, Lock, Stop
from popmq._transport.call_retries import Stopped
from popmq._transport.connection import Connection
from popmq._transport.grpcio import as_message, credentials, under_way
from popmq.config import CHANNEL_OPTIONS
from popmq.errors import ClientClosed
from popmq_proto.v1 import popmq_pb2_grpc as stubs


class GrpcioChannel:
    """Calls methods by name, "Broker.Send". It connects at the first call."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: grpc.Channel | None = None
        self._methods: dict[str, Any] = {}
        self._opening = Lock()
        self._closed = False

    def unary(self, method: str, request: Any, timeout: float, stop: Stop | None = None) -> Any:
        with under_way():
            return self._unary(method, as_message(request), timeout, stop)

    def _unary(self, method: str, request: Any, timeout: float, stop: Stop | None) -> Any:
        """The answer within `timeout` seconds. Raises CallFailed; Stopped when `stop` was set; ClientClosed."""
        if self._closed:
            raise ClientClosed("this client is closed")
        call = self._methods.get(method) or self._open(method)
        try:
            if stop is not None:
                return self._until(stop, call, request, timeout)
            return call(request, timeout=timeout, metadata=self._connection.headers())
        except (grpc.RpcError, ValueError):
            # A closed channel refuses with ValueError, and cancels with a status that a broker may send too.
            if self._closed:
                raise ClientClosed("this client was closed while a call was under way") from None
            raise

    def converse(self, method: str, hello: Any, answer: Callable[[Any], Any], stop: Stop) -> None:
        with under_way():
            self._converse(method, hello, answer, stop)

    def _converse(self, method: str, hello: Any, answer: Callable[[Any], Any], stop: Stop) -> None:
        """A stream of both sides: says `hello`, then what `answer` makes of each response, if anything; until it ends.

        Raises as `unary` does.
        """
        if self._closed:
            raise ClientClosed("this client is closed")
        said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        said.put(hello)
        call = (self._methods.get(method) or self._open(method))(
            iter(said.get, None), metadata=self._connection.headers()
        )
        unwatch = stop.watch(call.cancel)
        try:
            for response in call:
                reply = answer(response)
                if reply is not None:
                    said.put(reply)
        except (grpc.RpcError, ValueError):
            if stop.is_set():
                raise Stopped from None
            if self._closed:
                raise ClientClosed("this client was closed while a stream was open") from None
            raise
        finally:
            unwatch()
            said.put(None)  # ends the thread in which gRPC waits for more to say
            call.cancel()

    def listen(self, method: str, request: Any, take: Callable[[Any], None]) -> None:
        with under_way():
            self._listen(method, request, take)

    def _listen(self, method: str, request: Any, take: Callable[[Any], None]) -> None:
        """A stream of responses: `take` gets each of them, until it ends. Raises CallFailed; ClientClosed."""
        if self._closed:
            raise ClientClosed("this client is closed")
        call = (self._methods.get(method) or self._open(method))(request, metadata=self._connection.headers())
        try:
            for response in call:
                take(response)
        except (grpc.RpcError, ValueError):
            if self._closed:
                raise ClientClosed("this client was closed while a stream was open") from None
            raise
        finally:
            call.cancel()

    def close(self) -> None:
        """Cancels what is under way, and waits for its end, but no longer than STOP_S_MAX.

        gRPC waits forever for a call that a KeyboardInterrupt has interrupted, so another thread waits with it.
        """
        self._closed = True
        if self._channel is not None:
            closing = threading.Thread(target=self._channel.close, name="popmq-close", daemon=True)
            # At the exit of the program no thread can start, and its end closes the connection.
            with contextlib.suppress(RuntimeError):
                closing.start()
                closing.join(STOP_S_MAX)

    def _until(self, stop: Stop, call: Any, request: Any, timeout: float) -> Any:
        # A future costs twice a blocking call: taken only where the caller may want to stop it.
        future = call.future(request, timeout=timeout, metadata=self._connection.headers())
        unwatch = stop.watch(future.cancel)
        try:
            return future.result()
        except grpc.FutureCancelledError:
            # Raised for our own cancelling and for the status alike; the future itself is that status, as an error.
            if stop.is_set():
                raise Stopped from None
            raise future from None
        finally:
            unwatch()

    def _open(self, method: str) -> Any:
        with self._opening:
            if self._channel is None:
                where, trusted = self._connection.endpoint, credentials(self._connection)
                if trusted is None:
                    self._channel = grpc.insecure_channel(where, options=CHANNEL_OPTIONS)
                else:
                    self._channel = grpc.secure_channel(where, trusted, options=CHANNEL_OPTIONS)
            service, name = method.split(".")
            stub = getattr(stubs, f"{service}Stub")(self._channel)
            self._methods[method] = getattr(stub, name)
            return self._methods[method]
