"""A server of the remoting protocol on the loopback: reads frames, answers by a table of handlers, injects faults."""

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from popmq_remoting.codes import HeaderFlag, ResponseCode
from popmq_remoting.errors import BadFormat
from popmq_remoting.wire import frames
from popmq_remoting.wire.command import Command, Request, Response, texts
from popmq_remoting.wire.signature import signature
from tests.remoting.fake.faults import Fault, Faults, Kind
from tests.remoting.jumping import passed
from tests.remoting.writers import binary_header, frame

Handler = Callable[["Client", Request], Response | Awaitable[Response]]


def ok(body: bytes = b"", /, **fields: str | int | bool | None) -> Response:
    return Response(ResponseCode.SUCCESS, "", texts(fields), body)


class Client:
    """One connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.opaque = 1_000_000
        self.answers: dict[int, asyncio.Future[Response]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, request: Request, oneway: bool = True, opaque: int | None = None) -> int:
        """A request of the server's own."""
        self.opaque += 1
        number = self.opaque if opaque is None else opaque
        flag = HeaderFlag.ONEWAY if oneway else 0
        self.writer.write(frames.write(request.code, number, flag, request.fields, request.body))
        return number

    async def ask(self, request: Request) -> Response:
        """The client's answer to a request of the server's own."""
        number = self.send(request, oneway=False)
        self.answers[number] = asyncio.get_running_loop().create_future()
        return await self.answers[number]


class FakeServer:
    """`handlers`: what each code does. `secrets`: access keys; without any, every request is welcome."""

    def __init__(self, handlers: Mapping[int, Handler], secrets: Mapping[str, str] | None = None) -> None:
        self.handlers: dict[int, Handler] = dict(handlers)
        self.secrets = secrets or {}
        self.faults = Faults()
        self.clients: list[Client] = []
        #: All requests that came, by code; and each of them.
        self.counts: Counter[int] = Counter()
        self.requests: list[Request] = []
        #: Sizes of reads, and connections so far.
        self.reads: list[int] = []
        self.connections = 0
        #: Nothing is read or answered while it is clear, as of a process that was stopped.
        self.running = asyncio.Event()
        self.running.set()
        #: Whether it writes binary headers.
        self.binary = False
        #: Seconds of silence after which a connection is closed.
        self.idle_s: float | None = None
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listens; on the same port again after a stop."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Without warning: connections end, requests that are being answered are not."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.clients.append(client)
        self.connections += 1
        try:
            await self._read(reader, client)
        except (BadFormat, OSError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            self.clients.remove(client)
            for other in list(client.tasks):
                other.cancel()
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, client: Client) -> None:
        commands = frames.CommandReader()
        while data := await asyncio.wait_for(reader.read(1 << 20), self.idle_s):
            await self.running.wait()
            self.reads.append(len(data))
            for command in commands.feed(data):
                if command.is_answer:
                    client.answers.pop(command.opaque).set_result(command.response())
                    continue
                task = asyncio.get_running_loop().create_task(self._handle(client, command))
                client.tasks.add(task)
                task.add_done_callback(client.tasks.discard)

    async def _handle(self, client: Client, command: Command) -> None:
        request = command.request()
        self.counts[command.code] += 1
        self.requests.append(request)
        fault = self.faults.take(command.code)
        if fault is not None and self._instead(client, command, fault):
            return
        response = await self._respond(client, request)
        await self.running.wait()
        if not command.is_oneway:
            await self._write(client, command, response, fault)

    async def _respond(self, client: Client, request: Request) -> Response:
        if self.secrets and not self._is_known(request):
            return Response(ResponseCode.NO_PERMISSION, "no such user, or another signature")
        handler = self.handlers.get(request.code)
        if handler is None:
            return Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request type {request.code} not supported")
        response = handler(client, request)
        return response if isinstance(response, Response) else await response

    def _is_known(self, request: Request) -> bool:
        secret = self.secrets.get(request.fields.get("AccessKey", ""))
        made = signature(request.fields, request.body, secret) if secret else ""
        return bool(made) and made == request.fields.get("Signature")

    def _instead(self, client: Client, command: Command, fault: Fault) -> bool:
        """Faults that leave the request undone. Whether the fault is one of them."""
        match fault.kind:
            case Kind.DROPPED:
                client.writer.transport.abort()
            case Kind.GARBAGE:
                client.writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            case Kind.HUGE:
                client.writer.write((261 << 20).to_bytes(4, "big") + bytes(100))
            case Kind.ANSWER:
                client.writer.write(self._raw(command, fault.answer))
            case _:
                return False
        return True

    async def _write(self, client: Client, command: Command, response: Response, fault: Fault | None) -> None:
        raw = self._raw(command, response)
        match fault:
            case None:
                pass
            case Fault(Kind.WRONG_OPAQUE):
                raw = self._raw(command, response, 500_000)
            case Fault(Kind.ONEWAY_FIRST):
                client.send(Request(40, {"consumerGroup": "g"}), opaque=command.opaque)
            case Fault(Kind.TWICE):
                raw += raw
            case Fault(Kind.SILENT):
                return
            case Fault(Kind.SLOW):
                await passed(fault.seconds)
            case Fault(Kind.EMPTY_HEADER):
                raw = self._raw(command, response._replace(fields={}))
            case Fault(Kind.CUT):
                client.writer.write(raw[: fault.size])
                client.writer.close()
                return
        client.writer.write(raw)

    def _raw(self, command: Command, response: Response, ahead: int = 0) -> bytes:
        """The frame of an answer."""
        opaque, flag = command.opaque + ahead, HeaderFlag.RESPONSE
        if self.binary:
            return frame(1, binary_header(response.code, opaque, flag, response.remark, response.fields), response.body)
        return frames.write(response.code, opaque, flag, response.fields, response.body, response.remark)
