"""apache.rocketmq.v2.MessagingService, served beside popmq.v1 over the same engine.

transport ── bytes ──▶ RocketmqService ── request, Call ──▶ the part that has the method ── commands ──▶ Engine
                         │
                         └─ an exception of a part becomes the Status of the answer: a call never fails in gRPC

routes.py      QueryRoute, QueryAssignment            telemetry.py   Telemetry, Heartbeat, NotifyClientTermination
sending.py     SendMessage, RecallMessage,            receiving.py   ReceiveMessage
               EndTransaction                         acking.py      AckMessage, ChangeInvisibleDuration, Forward…
pulling.py     PullMessage and the offsets            lite.py        SyncLiteSubscription

See docs/decisions/0016-rocketmq-as-a-second-face.md.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.clock import Clock, stopwatch
from popmq_server.contract.engine import Engine
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.access import request_size
from popmq_server.protocols.access.admission import admit
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.access.open_streams import OpenStreams
from popmq_server.protocols.rocketmq.acking import AckService
from popmq_server.protocols.rocketmq.call import RocketmqCall, call_of
from popmq_server.protocols.rocketmq.clients import ConnectedClients
from popmq_server.protocols.rocketmq.lite import LiteService
from popmq_server.protocols.rocketmq.pulling import PullService
from popmq_server.protocols.rocketmq.receiving import ReceiveService
from popmq_server.protocols.rocketmq.remembered import NewestHandles
from popmq_server.protocols.rocketmq.routes import RouteService
from popmq_server.protocols.rocketmq.sending import SendService
from popmq_server.protocols.rocketmq.status import Declined, status_of
from popmq_server.protocols.rocketmq.telemetry import TelemetryService
from popmq_server.protocols.traffic import Traffic
from popmq_server.protocols.transport import ServedMethod

log = logging.getLogger("popmq.protocols")

SERVICE = rpc.DESCRIPTOR.services_by_name["MessagingService"]
#: Prefix of these calls' names in the metrics, which hold those of popmq.v1 too.
_PREFIX = "v2."

#: They take the request and the RocketmqCall. An answer as bytes is encoded already; of a unary call its status is OK,
#: of a stream it is a message.
Unary = Callable[..., Awaitable["Answer | bytes"]]
Streaming = Callable[..., AsyncGenerator["Answer | bytes", None]]


#: A message of the protocol, and its class: the fields differ.
Answer: TypeAlias = Any
Kind = type[Answer]
UnaryHandler = Callable[[bytes, CallContext], Awaitable[bytes]]


class RocketmqService:
    """The service over one engine.

    `native` counts requests and messages. `began` registers each call, so that a stop waits for its answer. `audited`
    wraps the calls that operators may make.
    """

    def __init__(
        self,
        engine: Engine,
        traffic: Traffic,
        clock: Clock,
        metrics: Metrics,
        keys: Keys | None,
        began: Callable[[CallContext], None],
        audited: Callable[[str, Unary], Unary],
        streams: OpenStreams,
    ) -> None:
        self._metrics = metrics
        self._began = began
        self._audited = audited
        self.clients = ConnectedClients(engine, clock, keys)
        self.routes = RouteService(engine)
        held, lite = NewestHandles(), LiteService(engine, self.clients)
        self._parts: tuple[object, ...] = (
            self.routes,
            SendService(engine, self.clients, traffic, metrics),
            ReceiveService(engine, self.clients, held, clock, traffic, metrics, lite),
            lite,
            AckService(engine, self.clients, held, traffic, metrics),
            PullService(engine, self.clients, traffic, metrics),
            TelemetryService(engine, self.clients, streams),
        )

    def close(self) -> None:
        """Ends the streams that last as long as their clients: the broker stops."""
        self.clients.closed.set()

    def methods(self) -> dict[str, ServedMethod]:
        """Every method of the contract."""
        methods: dict[str, ServedMethod] = {}
        for method in SERVICE.methods:
            call = next(getattr(part, method.name) for part in self._parts if hasattr(part, method.name))
            kinds = getattr(rpc, method.input_type.name), getattr(rpc, method.output_type.name)
            if method.client_streaming:
                methods[method.name] = ServedMethod(call, streams_in=True, streams_out=True)
                continue
            self._metrics.watch_bugs(_PREFIX + method.name, pb.Code.Name(pb.INTERNAL_SERVER_ERROR))
            if method.server_streaming:
                methods[method.name] = ServedMethod(self._streaming(method.name, call, *kinds), streams_out=True)
            else:
                call = self._audited(method.name, call)
                methods[method.name] = ServedMethod(self._unary(method.name, call, *kinds))
        return methods

    def _unary(
        self, name: str, method: Unary, kind: Kind, answer: Kind
    ) -> Callable[[bytes, CallContext], Awaitable[bytes]]:
        """Handles a unary call; its answer always has a status."""
        name = _PREFIX + name
        seconds, counted = self._metrics.call_seconds.labels(name), self._metrics.calls.labels(name, "OK")

        async def handle(raw: bytes, context: CallContext) -> bytes:
            began = stopwatch()
            self._began(context)
            call, answered = call_of(context), None
            try:
                call.check()
                answered = admit(context, len(raw))
                self.clients.heard(call)
                response = await method(_read(kind, raw), call)
            except asyncio.CancelledError:
                self._metrics.calls.labels(name, "CANCELLED").inc()
                raise
            except Exception as error:
                response = answer(status=self._failed(name, error, call))
                _mirror(response, kind, raw)
            finally:
                seconds.observe(stopwatch() - began)
            if isinstance(response, bytes):
                counted.inc()
            else:
                self._counted(name, response.status.code)
                response = response.SerializeToString()
            if answered is not None:
                answered(len(response))
            return bytes(response)

        return handle

    def _streaming(
        self, name: str, method: Streaming, kind: Kind, answer: Kind
    ) -> Callable[[bytes, CallContext], Awaitable[None]]:
        """Handles a server-streaming call. It writes the answers itself; a part is closed once the stream ends."""
        name = _PREFIX + name

        async def handle(raw: bytes, context: CallContext) -> None:
            began = stopwatch()
            self._began(context)
            call = call_of(context)._replace(on_arrival=getattr(context, "add_arrival_callback", None))
            try:
                call.check()
                answered = admit(context, len(raw))
                self.clients.heard(call)
                async with contextlib.aclosing(method(_read(kind, raw), call)) as responses:
                    async for response in responses:
                        if not isinstance(response, bytes):
                            if response.HasField("status"):
                                self._counted(name, response.status.code)
                            response = response.SerializeToString()
                        if answered is not None:
                            answered(len(response))
                        await context.write(response)
            except asyncio.CancelledError:
                self._metrics.calls.labels(name, "CANCELLED").inc()
                raise
            except grpc.aio.InternalError:  # the client has gone, or cannot take a message
                self._metrics.calls.labels(name, "CANCELLED").inc()
            except Exception as error:
                response = answer(status=self._failed(name, error, call))
                self._counted(name, response.status.code)
                await context.write(response.SerializeToString())
            finally:
                self._metrics.call_seconds.labels(name).observe(stopwatch() - began)

        return handle

    def _failed(self, name: str, error: Exception, call: RocketmqCall) -> pb.Status:
        """The status for an exception of a part; logs bugs."""
        if isinstance(error, Refused):
            self._metrics.refusals.labels(error.code).inc()
        elif not isinstance(error, Declined):
            log.exception("%s raised", name)
        return status_of(error, call.language)

    def _counted(self, name: str, code: int) -> None:
        self._metrics.calls.labels(name, pb.Code.Name(code)).inc()


def _mirror(response: Answer, kind: Kind, raw: bytes) -> None:
    """Copies the receipt handle into a failed answer: clients read it there whatever the status is."""
    if "receipt_handle" in response.DESCRIPTOR.fields_by_name:
        with contextlib.suppress(Declined, Refused):
            response.receipt_handle = _read(kind, raw).receipt_handle


def _read(kind: Kind, raw: bytes) -> Answer:
    """Parses the request. Drops unknown fields, because answers repeat parts of requests many times.

    Raises Declined, and Refused for more bytes or elements than any valid request has.
    """
    if len(raw) > request_size.FREE_BYTES:
        request_size.check(kind, raw)
    try:
        request = kind.FromString(raw)
        request.DiscardUnknownFields()
        return request
    except DecodeError:
        raise Declined(pb.BAD_REQUEST, f"the request's bytes are not a {kind.DESCRIPTOR.full_name}") from None
