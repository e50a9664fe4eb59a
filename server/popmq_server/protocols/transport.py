"""The two transports: grpcio's server, or popmq_http2's, which runs handlers written for grpcio.

    Server ── add_generic_rpc_handlers, ports ──▶ PythonTransport          --transport auto, python
                                             └──▶ grpc.aio.server          --transport grpcio
                                                   path ─▶ RpcMethodHandler ─▶ popmq_http2.Method

PythonTransport implements those methods of grpc.aio.Server that PopMQ calls. A handler's context is a
popmq_http2.Call, which implements the methods of grpcio's context that the handlers call.

See docs/decisions/0043-own-transport.md.
"""

import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

import popmq_http2
from popmq_http2 import Aborted, Call, Code, Limits, Method
from popmq_server.errors import Refused, StartError
from popmq_server.ports import opened
from popmq_server.protocols.refusals import ending

if TYPE_CHECKING:
    from popmq_server.protocols.access.certificate import Certificate, CertificatePair

_ALPN = ["h2"]


class Details(NamedTuple):
    """A call as interceptors see it."""

    method: str
    invocation_metadata: Any
    size: int = 0  # bytes of the request, if it is one message
    context: Any = None


class PythonTransport:
    """popmq_http2 with grpcio's registration methods. Make it inside the event loop."""

    def __init__(self, interceptors: Sequence[Any], limits: Limits) -> None:
        self._interceptors = interceptors
        self._generic: list[Any] = []
        self._methods: dict[str, Method] = {}
        self._sockets: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._server = popmq_http2.Server(self._find, limits, self._check if interceptors else None)

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self._generic += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Does nothing: grpcio registers these methods as generic handlers as well."""

    def open(self, hosts: tuple[str, ...], port: int, tls: ssl.SSLContext | None = None) -> int:
        """Binds a port on all hosts, served from `start` on; returns the port bound. Raises NotOpened."""
        bound = opened(hosts, port)
        self._sockets += [(one, tls) for one in bound]
        found: int = bound[0].getsockname()[1]
        return found

    async def start(self) -> None:
        while self._sockets:
            await self._server.serve(*self._sockets.pop(0))

    async def stop(self, grace_s: float) -> None:
        """Also closes ports that were bound and never served."""
        for bound, _ in self._sockets:
            bound.close()
        await self._server.stop(grace_s)

    def _find(self, path: str) -> Method | None:
        if (known := self._methods.get(path)) is not None:
            return known
        details = Details(path, ())
        handler = next((found for one in self._generic if (found := one.service(details)) is not None), None)
        if handler is not None:
            known = self._methods[path] = _method(handler, self._asked if self._interceptors else None)
        elif self._interceptors:
            known = Method(self._unknown, streams_in=True, streams_out=True)
        return known

    def _check(self, call: Call) -> None:
        """Asks the interceptors about a call whose request is large. Raises Aborted."""
        try:
            for interceptor in self._interceptors:
                interceptor.check(call)
        except Refused as refused:
            status, message, metadata = ending(refused)
            raise Aborted(Code(status.value[0]), message, metadata) from None

    async def _asked(self, handler: Any, call: Call, size: int = 0) -> Any:
        """The handler that the interceptors return for the call: this one, or one that refuses."""

        async def continuation(_: Any) -> Any:
            return handler

        for interceptor in self._interceptors:
            details = Details(call.path, call.invocation_metadata(), size, call)
            handler = await interceptor.intercept_service(continuation, details)
        return handler

    async def _unknown(self, call: Call) -> None:
        """Answers unknown methods; unauthenticated callers get their refusal first, as for any method."""
        handler = await self._asked(None, call)
        if handler is not None:
            await handler.stream_stream(call, call)
        await call.abort(grpc.StatusCode.UNIMPLEMENTED, f"there is no method {call.path}")


def _method(handler: Any, asked: Callable[[Any, Call, int], Any] | None) -> Method:
    """Wraps a handler of grpcio as a method; `asked` returns the handler for a call, or one that refuses.

    A handler that takes and returns bytes is called directly if nothing is to be asked: that is every frequent one.
    """
    decode, encode = handler.request_deserializer, handler.response_serializer
    if not (asked or decode or encode or handler.request_streaming):
        return Method(handler.unary_stream or handler.unary_unary, streams_out=handler.response_streaming)

    async def run(*given: Any) -> Any:
        call = given[-1]
        size = 0 if handler.request_streaming else len(given[0])
        if asked is not None and (chosen := await asked(handler, call, size)) is not handler:
            await chosen.stream_stream(call, call)
        if handler.request_streaming:
            request: Any = call if decode is None else _decoded(call, decode)
        else:
            request = given[0] if decode is None else decode(given[0])
        context = call if encode is None else _Encoding(call, encode)
        if not handler.response_streaming:
            behavior = handler.stream_unary if handler.request_streaming else handler.unary_unary
            answer = await behavior(request, context)
            return answer if encode is None else encode(answer)
        behavior = handler.stream_stream if handler.request_streaming else handler.unary_stream
        answer = behavior(request, context)
        if not hasattr(answer, "__anext__"):
            return await answer
        async for message in answer:
            await context.write(message)
        return None

    return Method(run, handler.request_streaming, handler.response_streaming)


async def _decoded(call: Call, decode: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    async for message in call:
        yield decode(message)


class _Encoding:
    """A context for handlers that write messages rather than bytes."""

    def __init__(self, call: Call, encode: Callable[[Any], bytes]) -> None:
        self._call = call
        self._encode = encode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def write(self, message: Any) -> None:
        await self._call.write(self._encode(message))


class _Listening(ssl.SSLContext):
    """The context of a port: secures each connection with a context of the pair that is current then.

    A client of TLS 1.2 may resume a session from the cache of a context, and shows no certificate then. So a context
    serves one pair: a session is resumed only under the authorities that have verified it.
    """

    choose: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        return self.choose().wrap_bio(*given, **named)


def tls_context(certificate: "Certificate", client_required: bool) -> ssl.SSLContext:
    """A context that checks for a new certificate at each connection: files may be replaced at any time.

    With authorities of clients it asks for a client's certificate; `client_required`: no client connects without one.
    """
    served = certificate.pair, _context(certificate.pair, client_required)

    def choose() -> ssl.SSLContext:
        nonlocal served
        if (pair := certificate.current()) is not served[0]:
            served = pair, _context(pair, client_required)
        return served[1]

    listening = _Listening(ssl.PROTOCOL_TLS_SERVER)
    listening.choose = choose
    return listening


def _context(pair: "CertificatePair", client_required: bool) -> ssl.SSLContext:
    """Loads a pair. Python reads certificates from files only: these have mode 600, and are deleted at once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(_ALPN)
    if pair.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED if client_required else ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=pair.client_ca.decode("latin-1"))
        # A ticket would be good for as long as its client likes. The sessions of TLS 1.2 that are left: _Listening.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    with tempfile.TemporaryDirectory(prefix="popmq-") as folder:
        paths = []
        for name, content in (("chain", pair.chain), ("key", pair.key)):
            paths.append(os.path.join(folder, name))
            with open(os.open(paths[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
        try:
            context.load_cert_chain(*paths)
        except ssl.SSLError as error:
            raise StartError(f"the certificate cannot be used: {error}") from None
    return context
