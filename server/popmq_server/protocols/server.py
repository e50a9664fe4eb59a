"""The gRPC server: build, bind, drain. Both transports (transport.py) run the same handlers."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from google.protobuf import any_pb2, duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from popmq_http2 import Limits
from popmq_proto.rocketmq import definition_pb2, service_pb2
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server import logs, ports
from popmq_server.clock import Clock, stopwatch
from popmq_server.contract.engine import BasicEngine, Engine
from popmq_server.contract.limited import limited
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.monitoring.rates import Rates
from popmq_server.options import CONNECTIONS_PER_ADDRESS, TRANSPORT, is_loopback
from popmq_server.protocols import auditing
from popmq_server.protocols.access.admission import admit
from popmq_server.protocols.access.authorization import Guarded
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.access.open_streams import OpenStreams
from popmq_server.protocols.authentication import Authentication
from popmq_server.protocols.client_calls import ClientCallsService
from popmq_server.protocols.grpcio_transport import GrpcioTransport
from popmq_server.protocols.keda.calls import METHODS, SCALER, ScalerCalls
from popmq_server.protocols.key_list import KeyService
from popmq_server.protocols.last_hour import HistoryService
from popmq_server.protocols.native.admin import AdminService
from popmq_server.protocols.native.inspection import InspectionService
from popmq_server.protocols.native.native import NativeService
from popmq_server.protocols.native.operating import OperatingService, OrderingService
from popmq_server.protocols.native.pending import ScheduleService, TimingService
from popmq_server.protocols.native.producer_stream import SessionService
from popmq_server.protocols.native.pulling import PullingService
from popmq_server.protocols.native.results import ResultService
from popmq_server.protocols.native.settling import SettlingService
from popmq_server.protocols.native.sinks import StagingService
from popmq_server.protocols.probes import HEALTH, REFLECTIONS, HealthService, Reflection, reflection_v1
from popmq_server.protocols.refusals import refuse
from popmq_server.protocols.rocketmq.service import SERVICE, RocketmqService
from popmq_server.protocols.traffic import Traffic
from popmq_server.protocols.transport import PythonTransport, Requests, ServedMethod, Transport, tls_context

if TYPE_CHECKING:
    from popmq_server.protocols.access.certificate import Certificate
    from popmq_server.protocols.connect.port import HttpPort

log = logging.getLogger("popmq.protocols")

#: The largest request: a Send has at most 16 MiB of messages, and some bytes around them.
MESSAGE_BYTES = 20 << 20
_SERVICES = ("Broker", "Admin")

#: How long a stop waits for the remaining streams once every counted call has been answered, in seconds.
_STREAMS_S = 0.25

Method = Callable[[bytes], Awaitable[Message | bytes]]
StreamMethod = Callable[[AsyncIterator[bytes]], AsyncGenerator[Message, None]]


class Server:
    """A bound port with both services, health and reflection over one engine.

    A transport passes requests and responses as bytes. Parsing inside the handler turns a malformed request into a
    typed refusal instead of a failed call, and lets Send and Pop keep the bytes of messages as they are.
    """

    def __init__(
        self,
        engine: BasicEngine,
        clock: Clock,
        metrics: Metrics,
        keys: Keys | None = None,
        transport: str = TRANSPORT,
        connections_per_address: int = CONNECTIONS_PER_ADDRESS,
        listening: ports.Ports | None = None,
        origins: tuple[str, ...] = (),
    ) -> None:
        """With `keys` every call needs an access key, and every service gets the engine wrapped in Guarded.

        `listening`: where its sockets come from; by default it opens them. `origins`: of the web pages that may call
        the HTTP port.
        """
        self._metrics = metrics
        #: Whether calls are counted against the limits of access keys.
        self._admits = keys is not None
        authentication = Authentication(keys, metrics, (f"/{SERVICE.full_name}/", f"/{SCALER}/")) if keys else None
        limits = Limits(message_bytes=MESSAGE_BYTES, connections_per_address=connections_per_address)
        self._listening = listening or ports.Ports()
        self._transport = _transport(transport, authentication, limits, self._listening)
        self._http: HttpPort | None = None
        self._http_settings = authentication, limits, origins
        self._services: dict[str, dict[str, ServedMethod]] = {}
        whole = limited(engine)
        served: Engine = Guarded(whole, keys) if keys else whole
        self._streams = OpenStreams(keys)
        self._health = HealthService(self._streams, metrics)
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        rates = Rates(clock)
        traffic = Traffic(clock, metrics, rates)
        native = NativeService(served, clock, metrics, rates, traffic)
        self._rocketmq = RocketmqService(
            served, traffic, clock, metrics, keys, self._began, auditing.operated_v2, self._streams
        )
        parts: tuple[object, ...] = (
            native,
            AdminService(served, native, metrics, rates),
            OperatingService(served),
            OrderingService(served),
            PullingService(served, traffic, metrics),
            TimingService(served, metrics),
            ScheduleService(served),
            SettlingService(served, traffic, metrics),
            ResultService(served, traffic, metrics),
            StagingService(served, traffic, metrics),
            InspectionService(served, traffic, metrics),
            SessionService(served, metrics),
            ClientCallsService(served, self._rocketmq.clients),
            KeyService(keys),
            HistoryService(served, clock, metrics),
        )
        metrics.watch_refusals(pb.Code.keys()[1:])  # the first one says that there is none
        for name in _SERVICES:
            methods = self._methods(name, parts)
            self._transport.register(f"popmq.v1.{name}", methods)
            self._services[name] = methods
        self._transport.register(SERVICE.full_name, self._rocketmq.methods())
        self._transport.register(SCALER, self._scaler(ScalerCalls(served, clock, keys)))
        self._transport.register(HEALTH, self._health.methods())
        names = [*(f"popmq.v1.{name}" for name in _SERVICES), SERVICE.full_name, HEALTH, *REFLECTIONS]
        described = Reflection(self._streams, metrics, names, _described())
        for name in REFLECTIONS:
            self._transport.register(name, described.methods())

    def _methods(self, name: str, parts: tuple[object, ...]) -> dict[str, ServedMethod]:
        """The methods of a service, each from the part that implements it."""
        methods: dict[str, ServedMethod] = {}
        for method in pb.DESCRIPTOR.services_by_name[name].methods:
            call = next(getattr(part, method.name) for part in parts if hasattr(part, method.name))
            self._metrics.watch_bugs(method.name, "INTERNAL")
            if name == "Admin" and auditing.is_audited(method.name):
                call = (auditing.stream if method.server_streaming else auditing.unary)(method.name, call)
            elif method.name in auditing.OPERATED:
                call = auditing.operated(method.name, call)
            streams = method.client_streaming or method.server_streaming
            handle = self._stream(method.name, call) if streams else self._unary(method.name, call)
            methods[method.name] = ServedMethod(handle, method.client_streaming, method.server_streaming)
        return methods

    def _scaler(self, calls: ScalerCalls) -> dict[str, ServedMethod]:
        """The methods that KEDA calls. Its trigger may name the access key, so a caller is known by its request."""

        def method(name: str, streams: bool) -> ServedMethod:
            counted = f"keda.{name}"
            self._metrics.watch_bugs(counted, "INTERNAL")
            handle: Callable[..., Awaitable[object]] = (self._stream if streams else self._unary)(
                counted, calls.call(name)
            )

            async def identified(raw: bytes, context: CallContext) -> object:
                try:
                    calls.identify(name, raw, context)
                except Refused as refused:
                    await self._refuse(counted, context, refused)
                else:
                    return await handle(raw, context)
                return None  # the refusal is on the wire

            return ServedMethod(identified, streams_out=streams)

        return {name: method(name, streams) for name, streams in METHODS.items()}

    def _unary(self, name: str, call: Method) -> Callable[[bytes, CallContext], Awaitable[bytes | None]]:
        """Handles a unary call: times it, counts it, puts its refusal on the wire; logs a bug and answers INTERNAL.

        Exceptions of unary calls of popmq.v1 meet the wire only here, so no method can forget to count, or leak a
        traceback to a client.
        """
        seconds, counted = self._metrics.call_seconds.labels(name), self._metrics.calls.labels(name, "OK")

        async def handle(raw: bytes, context: CallContext) -> bytes | None:
            """Times the call from arrival to answer, the wait of a long poll included."""
            began = stopwatch()
            self._began(context)
            try:
                answered = admit(context, len(raw)) if self._admits else None
                response = await call(raw)
            except Refused as refused:
                await self._refuse(name, context, refused)
            except asyncio.CancelledError:
                self._metrics.calls.labels(name, "CANCELLED").inc()
                raise
            except Exception:
                log.exception("%s raised", name)
                await self._refuse(name, context, _bug(name))
            else:
                counted.value += 1
                answer = response if response.__class__ is bytes else _bytes(response)
                if answered is not None:
                    answered(len(answer))
                return answer
            finally:
                seconds.observe(stopwatch() - began)
            return None  # the refusal is on the wire

        return handle

    def _began(self, context: CallContext) -> None:
        """Counts a call as running until its answer has left, or its caller has gone; log lines are of this call."""
        logs.CALL.set(context)
        if not self._running:
            self._idle.clear()
        self._running += 1
        context.add_done_callback(self._ended)

    def _ended(self, _: object) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()

    async def _refuse(self, name: str, context: CallContext, refused: Refused) -> None:
        """Counts the refusal and puts it on the wire."""
        self._metrics.calls.labels(name, refused.code).inc()
        self._metrics.refusals.labels(refused.code).inc()
        await refuse(context, refused)

    def _stream(self, name: str, call: StreamMethod) -> Callable[[Requests, CallContext], Awaitable[None]]:
        """Handles a streaming call. It lasts as long as its client, so a stop does not wait for it.

        The handler writes the responses itself instead of yielding them to the transport. So `call` is closed as soon
        as the stream ends, at any moment, and it continues after a `yield` only when the response was written.
        """

        async def handle(asked: Requests, context: CallContext) -> None:
            ended = "OK"
            logs.CALL.set(context)
            try:
                whole = isinstance(asked, bytes)
                async with self._streams.admitted(context, len(asked) if whole else 0) as stream:
                    requests = asked if whole else stream.messages(asked)
                    async with contextlib.aclosing(call(requests)) as responses:
                        async for response in responses:
                            await stream.write(_bytes(response))
            except Refused as refused:
                ended = ""
                await self._refuse(name, context, refused)
            except asyncio.CancelledError:
                ended = "CANCELLED"
                raise
            except Exception:
                ended = ""
                log.exception("%s raised", name)
                await self._refuse(name, context, _bug(name))
            finally:
                if ended:
                    self._metrics.calls.labels(name, ended).inc()

        return handle

    def open(self, hosts: tuple[str, ...], port: int) -> int:
        """Binds the port without TLS on all hosts; returns the port bound. Serves no client before `start`."""
        bound = ports.bound(self._transport.open, hosts, port, "port", ports.PORT_CURE)
        self._rocketmq.routes.advertise(hosts[0], bound)
        return bound

    def open_tls(
        self, hosts: tuple[str, ...], port: int, certificate: "Certificate", client_required: bool = False
    ) -> None:
        """Binds the port with TLS. Each new connection asks for the certificate.

        `client_required`: no client connects without a certificate; grpcio asks for one only then.
        """
        bind = functools.partial(self._transport.open_tls, certificate=certificate, client_required=client_required)
        ports.bound(bind, hosts, port, "TLS port", ports.TLS_PORT_CURE)

    def open_http(
        self, hosts: tuple[str, ...], port: int, certificate: "Certificate | None", client_required: bool = False
    ) -> None:
        """Binds the port of HTTP with JSON; with a certificate it has TLS. `client_required`: as of `open_tls`."""
        from popmq_server.protocols.connect.port import HTTP_ALPN, HttpPort  # 20 modules that other brokers do not need

        bound = ports.bound(self._listening.opened, hosts, port, "HTTP port", ports.HTTP_PORT_CURE)
        tls = None if certificate is None else tls_context(certificate, client_required, HTTP_ALPN)
        self._http = HttpPort(*self._http_settings)
        for name, methods in self._services.items():
            described = pb.DESCRIPTOR.services_by_name[name].methods_by_name
            self._http.register(f"popmq.v1.{name}", methods, described)
        for one in bound:
            self._http.open(one, tls, is_shared=self._listening.are_shared, is_local=is_loopback(hosts))

    async def start(self) -> None:
        """Serves on the open ports; the last step of a start."""
        await self._transport.start()
        if self._http is not None:
            await self._http.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        for name in _SERVICES:
            await self._health.set(f"popmq.v1.{name}", health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls and lets running ones end for at most `grace_s`.

        Does not wait for streams that stay open (a health watch lasts as long as its client), nor for clients that do
        not answer the end of TLS.
        """
        await self._health.enter_graceful_shutdown()
        self._rocketmq.close()
        served = (self._transport,) if self._http is None else (self._transport, self._http)
        stopped = asyncio.gather(*(one.stop(grace_s) for one in served))
        await asyncio.wait((stopped, idle := asyncio.ensure_future(self._idle.wait())), return_when="FIRST_COMPLETED")
        idle.cancel()
        await asyncio.gather(*(one.stop(min(grace_s, _STREAMS_S)) for one in served))
        await stopped


def _transport(name: str, authentication: Authentication | None, limits: Limits, listening: ports.Ports) -> Transport:
    """What serves the ports; "auto" is PopMQ's own, the only one that takes sockets of another process."""
    if name == "grpcio":
        return GrpcioTransport(authentication, limits.message_bytes)
    return PythonTransport(authentication, limits, listening)


def _described() -> DescriptorPool:
    """The descriptors of all services, for reflection: the two protocols are defined in pools of their own."""
    pool = DescriptorPool()
    well_known = (any_pb2, duration_pb2, timestamp_pb2, status_pb2)
    for module in (*well_known, pb, definition_pb2, service_pb2, health_pb2, reflection_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(reflection_v1())
    return pool


def _bug(name: str) -> Refused:
    where = f"the broker's log; it names request {logs.request_id()}"
    return Refused("INTERNAL", f"the broker failed on this {name}", action=f"report it with {where}")


def _bytes(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()
