"""The transports: popmq_http2's server (--transport auto, python), or grpcio's (grpcio_transport.py).

    Server ── register(service, methods), open, open_tls ──▶ Transport ──▶ ServedMethod.handle(request, context)

Both run the same handlers. A handler's context is a popmq_http2.Call, or grpcio's context: the Call has those of its
methods that the handlers call.

See docs/decisions/0043-own-transport.md.
"""

import functools
import os
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import grpc

import popmq_http2
from popmq_http2 import Call, Limits, Method
from popmq_server.errors import Refused, StartError
from popmq_server.ports import Ports
from popmq_server.protocols.refusals import aborted

if TYPE_CHECKING:
    from popmq_server.protocols.access.certificate import Certificate, CertificatePair
    from popmq_server.protocols.authentication import Authentication

_ALPN = ("h2",)
#: What a handler gets: the bytes of one request, or an iterator over those of a stream.
Requests: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class ServedMethod:
    """A method of a service. Its handler gets the bytes of the request and the context of the call.

    `streams_in`: it gets the requests as an asynchronous iterator instead. It returns the bytes of the answer;
    `streams_out`: it writes its answers to the context.
    """

    handle: Callable[..., Awaitable[object]]
    streams_in: bool = False
    streams_out: bool = False


class Transport(Protocol):
    """What serves the methods on ports."""

    def register(self, service: str, methods: Mapping[str, ServedMethod]) -> None:
        """Adds the methods of a service, by their names."""

    def open(self, hosts: tuple[str, ...], port: int) -> int:
        """Binds a port on all hosts, served from `start` on; returns the port bound. Raises NotOpened."""

    def open_tls(self, hosts: tuple[str, ...], port: int, certificate: "Certificate", client_required: bool) -> int:
        """The same with TLS. Each new connection asks for the certificate.

        `client_required`: no client connects without a certificate.
        """

    async def start(self) -> None:
        """Serves on the open ports."""

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls, and ends those that run longer than this; also closes ports that were never served."""


class PythonTransport:
    """popmq_http2. Make it inside the event loop. `authentication` None: it asks for no access key."""

    def __init__(self, authentication: "Authentication | None", limits: Limits, ports: Ports) -> None:
        self._authentication = authentication
        self._ports = ports
        self._methods: dict[str, Method] = {}
        self._sockets: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._unknown = Method(self._refuse_unknown, streams_in=True, streams_out=True) if authentication else None
        find = self._find if authentication else self._methods.get
        self._server = popmq_http2.Server(find, limits, self._check if authentication else None)

    def register(self, service: str, methods: Mapping[str, ServedMethod]) -> None:
        for name, method in methods.items():
            handle = method.handle if self._authentication is None else functools.partial(self._identified, method)
            handler = _with_itself(handle) if method.streams_in else handle
            self._methods[f"/{service}/{name}"] = Method(handler, method.streams_in, method.streams_out)

    def open(self, hosts: tuple[str, ...], port: int) -> int:
        return self._open(hosts, port, None)

    def open_tls(self, hosts: tuple[str, ...], port: int, certificate: "Certificate", client_required: bool) -> int:
        return self._open(hosts, port, tls_context(certificate, client_required))

    def _open(self, hosts: tuple[str, ...], port: int, tls: ssl.SSLContext | None) -> int:
        bound = self._ports.opened(hosts, port)
        self._sockets += [(one, tls) for one in bound]
        found: int = bound[0].getsockname()[1]
        return found

    async def start(self) -> None:
        while self._sockets:
            await self._server.serve(*self._sockets.pop(0), is_shared=self._ports.are_shared)

    async def stop(self, grace_s: float) -> None:
        for bound, _ in self._sockets:
            bound.close()
        await self._server.stop(grace_s)

    def _find(self, path: str) -> Method | None:
        return self._methods.get(path, self._unknown)

    def _check(self, call: Call) -> None:
        """Checks the caller of a call whose request is large. Raises Aborted."""
        assert self._authentication
        try:
            self._authentication.check(call)
        except Refused as refused:
            raise aborted(refused) from None

    async def _identified(self, method: ServedMethod, request: Requests, call: Call) -> object:
        """Runs the handler of a method for a caller with a valid key."""
        await self._identify(call, 0 if method.streams_in else len(request))
        return await method.handle(request, call)

    async def _identify(self, call: Call, size: int) -> None:
        """Sets CALLER, or refuses the call."""
        assert self._authentication
        if not await self._authentication.identifies(call.path, call.invocation_metadata(), call, size):
            await self._authentication.refuse(call)

    async def _refuse_unknown(self, call: Call) -> None:
        """Answers unknown methods; unauthenticated callers get their refusal first, as for any method."""
        await self._identify(call, 0)
        await call.abort(grpc.StatusCode.UNIMPLEMENTED, f"there is no method {call.path}")


def _with_itself(handle: Callable[..., Awaitable[object]]) -> Callable[[Call], Awaitable[object]]:
    """A handler of a stream for popmq_http2, whose Call is the iterator of its requests and its context."""
    return lambda call: handle(call, call)


class _Listening(ssl.SSLContext):
    """The context of a port: secures each connection with a context of the pair that is current then.

    A client of TLS 1.2 may resume a session from the cache of a context, and shows no certificate then. So a context
    serves one pair: a session is resumed only under the authorities that have verified it.
    """

    choose: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:  # as those of the base class
        return self.choose().wrap_bio(*given, **named)


def tls_context(certificate: "Certificate", client_required: bool, protocols: Sequence[str] = _ALPN) -> ssl.SSLContext:
    """A context that checks for a new certificate at each connection: files may be replaced at any time.

    With authorities of clients it asks for a client's certificate; `client_required`: no client connects without one.
    `protocols`: what it agrees on by ALPN.
    """
    served = certificate.pair, _context(certificate.pair, client_required, protocols)

    def choose() -> ssl.SSLContext:
        nonlocal served
        if (pair := certificate.current()) is not served[0]:
            served = pair, _context(pair, client_required, protocols)
        return served[1]

    listening = _Listening(ssl.PROTOCOL_TLS_SERVER)
    listening.choose = choose
    return listening


def _context(pair: "CertificatePair", client_required: bool, protocols: Sequence[str]) -> ssl.SSLContext:
    """Loads a pair. Python reads certificates from files only: these have mode 600, and are deleted at once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(protocols)
    if pair.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED if client_required else ssl.CERT_OPTIONAL
        # Python takes ASCII only: what else the file has is beside the certificates.
        context.load_verify_locations(cadata=pair.client_ca.decode("ascii", "ignore"))
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
