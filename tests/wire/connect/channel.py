"""A gRPC channel whose unary calls travel over HTTP with JSON: the same tests judge both faces (POPMQ_FACE=http).

Streams go over gRPC, since the HTTP port serves none.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import grpc
from google.protobuf import any_pb2, json_format
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2

from popmq_http2 import Code
from popmq_proto.v1 import popmq_pb2 as pb

_CODES = {code.name.lower(): code for code in Code} | {"canceled": Code.CANCELLED}
_STATUSES = {status.value[0]: status for status in grpc.StatusCode}


class HttpError(grpc.RpcError):
    """A refused call, as grpc shows one: with the google.rpc.Status that its details make."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer)
        self._code, self._message = _CODES[answer["code"]], answer["message"]
        rich = status_pb2.Status(code=self._code, message=self._message)
        for detail in answer.get("details", ()):
            raw = base64.b64decode(detail["value"] + "=" * (-len(detail["value"]) % 4))
            rich.details.append(any_pb2.Any(type_url=f"type.googleapis.com/{detail['type']}", value=raw))
        self._rich = rich.SerializeToString() if rich.details else b""

    def code(self) -> grpc.StatusCode:
        return _STATUSES[self._code]

    def details(self) -> str:
        return str(self._message)

    def trailing_metadata(self) -> Any:
        return (("grpc-status-details-bin", self._rich),) if self._rich else ()


class HttpCall:
    """A unary method, as stubs call it."""

    def __init__(self, channel: HttpChannel, path: str) -> None:
        self._channel, self._path = channel, path
        service, _, name = path.rpartition("/")
        method = pb.DESCRIPTOR.services_by_name[service.rpartition(".")[2]].methods_by_name[name]
        self._answer: type[Message] = GetMessageClass(method.output_type)
        self._asked: type[Message] = GetMessageClass(method.input_type)

    def __call__(self, request: Any, timeout: float | None = None, metadata: Any = (), **named: Any) -> Any:
        is_raw = isinstance(request, bytes)
        headers = {"content-type": "application/proto" if is_raw else "application/json", **dict(metadata or ())}
        if timeout is not None:
            headers["connect-timeout-ms"] = str(max(0, int(timeout * 1000)))
        body = request if is_raw else json_format.MessageToJson(request).encode()
        status, raw = self._channel.asked(self._path, headers, body, named.get("connection"))
        if status != 200:
            raise HttpError(json.loads(raw))
        return raw if is_raw else json_format.Parse(raw, self._answer())

    def future(self, request: Any, timeout: float | None = None, **_: Any) -> HttpFuture:
        return HttpFuture(self, self._channel, request, timeout)


class HttpFuture:
    """A call on its way, on a connection of its own: to cancel it ends the connection."""

    def __init__(self, call: HttpCall, channel: HttpChannel, request: Any, timeout: float | None) -> None:
        self._connection = channel.connection()
        self._cancelled = False
        self._made: Future[Any] = channel.threads.submit(call, request, timeout, connection=self._connection)

    def cancel(self) -> None:
        self._cancelled = True
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def done(self) -> bool:
        return self._made.done()

    def result(self, timeout: float | None = None) -> Any:
        if self._cancelled:
            raise grpc.FutureCancelledError
        return self._made.result(timeout)

    def exception(self, timeout: float | None = None) -> Any:
        return self._made.exception(timeout)

    def __getattr__(self, name: str) -> Any:
        """What a grpc.Call tells of a refused call."""
        return getattr(self.exception(), name)


class HttpChannel:
    """Connections of HTTP/1.1, one for each thread."""

    def __init__(self, url: str, streams: grpc.Channel) -> None:
        self._host, self._streams = urlsplit(url).netloc, streams
        self._own, self._opened = threading.local(), list[http.client.HTTPConnection]()
        self.threads = ThreadPoolExecutor(64)

    def connection(self) -> http.client.HTTPConnection:
        """A new one, which ends with the channel."""
        made = http.client.HTTPConnection(self._host)
        made.connect()
        self._opened.append(made)
        return made

    def asked(
        self, path: str, headers: dict[str, str], body: bytes, connection: http.client.HTTPConnection | None
    ) -> tuple[int, bytes]:
        """Makes one request, on the connection of this thread if none is named."""
        connection = connection or getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self.connection()
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (http.client.HTTPException, OSError):
            connection.close()
            raise

    def unary_unary(self, method: str, *_: Any, **__: Any) -> HttpCall:
        return HttpCall(self, method)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streams, name)

    def close(self) -> None:
        self._streams.close()
        for connection in self._opened:
            connection.close()
        self.threads.shutdown(wait=False)
