"""The transport of grpcio, the fallback: --transport grpcio.

`grpc.so_reuseport` is always 0: with its default a second broker would bind the same port, and messages would seem to
vanish.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from popmq_server import ports
from popmq_server.options import address
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.authentication import UNKNOWN_BYTES, Authentication, Headers, signed
from popmq_server.protocols.transport import ServedMethod

if TYPE_CHECKING:
    from popmq_server.protocols.access.certificate import Certificate, CertificatePair

_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Streams of a machine that disappeared end after this, not after the two hours of the default.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


#: A grpc.RpcMethodHandler and a grpc.HandlerCallDetails. Functions are coroutines here, which the stubs do not know.
Handler: TypeAlias = Any
Details = Handler


class GrpcioTransport:
    """grpcio's server. `authentication` None: it asks for no access key."""

    def __init__(self, authentication: Authentication | None, message_bytes: int) -> None:
        options = (*_OPTIONS, ("grpc.max_receive_message_length", message_bytes))
        interceptors = [_Interceptor(authentication)] if authentication else []
        self._server = grpc.aio.server(options=options, interceptors=interceptors)
        self._started = False

    def register(self, service: str, methods: Mapping[str, ServedMethod]) -> None:
        handlers = {name: _handler(method) for name, method in methods.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    def open(self, hosts: tuple[str, ...], port: int) -> int:
        return _opened(self._server.add_insecure_port, hosts, port)

    def open_tls(self, hosts: tuple[str, ...], port: int, certificate: "Certificate", client_required: bool) -> int:
        """Asks for the certificate on a thread of its own; for that of a client only with `client_required`."""

        def add(where: str) -> int:
            # Credentials of its own for each address: they give their first configuration to one only.
            first, later = _configuration(certificate.pair), _replaced(certificate)
            bound: int = self._server.add_secure_port(
                where, grpc.dynamic_ssl_server_credentials(first, later, client_required)
            )
            return bound

        return _opened(add, hosts, port)

    async def start(self) -> None:
        self._started = True
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        if not self._started:  # grpcio closes no port of a server that was not started
            await self.start()
            grace_s = 0.0
        await self._server.stop(grace_s)


def _handler(method: ServedMethod) -> Handler:
    if method.streams_in:
        return grpc.stream_stream_rpc_method_handler(method.handle)
    if method.streams_out:
        return grpc.unary_stream_rpc_method_handler(method.handle)
    return grpc.unary_unary_rpc_method_handler(method.handle)


class _Interceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, unused-ignore]  # untyped without the stubs of grpc.aio
    """Identifies the caller before grpcio runs a handler, which it does in the same task."""

    def __init__(self, authentication: Authentication) -> None:
        self._authentication = authentication
        # A bidirectional stream fits every call: it reads nothing, and aborts before it answers.
        self._refusing: Handler = grpc.stream_stream_rpc_method_handler(self._refuse)

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler]], details: Details
    ) -> Handler:
        """The handler that runs: the one that was registered, or one that refuses."""
        if signed(details.invocation_metadata)[0] or not self._authentication.takes_certificates:
            if not await self._identifies(details.method, details.invocation_metadata, None):
                return self._refusing
            return await continuation(details)
        handler = await continuation(details)
        if handler is None:
            self._authentication.refuse_unknown()
            return self._refusing
        return self._later(details.method, handler)

    async def _identifies(self, method: str, metadata: Headers, context: CallContext | None) -> bool:
        return await self._authentication.identifies(method, metadata, context, UNKNOWN_BYTES)

    async def _refuse(self, _: object, context: CallContext) -> None:
        await self._authentication.refuse(context)

    def _later(self, method: str, handler: Handler) -> Handler:
        """The handler for a caller that has only a certificate: grpcio shows it to handlers, not to interceptors."""
        handle = handler.unary_unary or handler.unary_stream or handler.stream_stream

        async def run(request: object, context: CallContext) -> object:
            if not await self._identifies(method, (), context):
                await self._authentication.refuse(context)
            return await handle(request, context)

        return _handler(ServedMethod(run, handler.request_streaming, handler.response_streaming))


def _opened(add: Callable[[str], int], hosts: tuple[str, ...], port: int) -> int:
    """Binds a port on all hosts. Raises NotOpened.

    grpcio takes host and port as one text, does not say why it fails, and gives no port back. So a named port is tried
    on all hosts first. It reports failure as 0 or as RuntimeError, depending on the version.
    """
    if port:
        ports.close(ports.opened(hosts, port))
    for host in hosts:
        try:
            port = add(address(host, port))
        except RuntimeError as error:
            raise ports.NotOpened(host, error) from error
        if not port:
            raise ports.NotOpened(host)
    return port


def _configuration(pair: "CertificatePair") -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.chain)], pair.client_ca or None)


def _replaced(certificate: "Certificate") -> Callable[[], grpc.ServerCertificateConfiguration]:
    """What grpcio asks for a new certificate; None means unchanged."""
    served = certificate.pair

    def fetch() -> grpc.ServerCertificateConfiguration:
        nonlocal served
        before, served = served, certificate.current()
        if served is before:
            return None  # type: ignore[return-value]  # unchanged, which the stubs do not know
        return _configuration(served)

    return fetch
