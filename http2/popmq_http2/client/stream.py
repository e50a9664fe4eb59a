"""A connected socket of one thread's connection: bytes in and out, through TLS if there is some; and waiting for it.

    send ─▶ TLS ─▶ bytes that the socket does not take at once wait ─▶ flush, when it is writable again
    receive ─▶ TLS ─▶ bytes; b"" at the end

It never blocks after it was opened. TLS runs over buffers in memory (ssl.MemoryBIO), since one thread sends while
another one receives, and an SSLSocket is not made for that.
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import TYPE_CHECKING

from popmq_http2.client.target import Address, Target, addresses
from popmq_http2.elapsed import monotonic

if TYPE_CHECKING:
    import ssl

#: Bits of events, with the numbers of Linux; poll has others on other systems.
READ, WRITE = getattr(select, "POLLIN", 1), getattr(select, "POLLOUT", 4)
_RECEIVE_BYTES = 64 << 10
NOT_HTTP2 = "the server does not speak HTTP/2: TLS agreed on no protocol (ALPN)"


class Stream:
    """A socket and its TLS, from `opened`. One thread may receive while another sends; all other calls need a lock."""

    def __init__(self, connected: socket.socket, tls: Tls | None) -> None:
        self.socket = connected
        self._tls = tls
        self._rest = b""

    @property
    def stuck(self) -> bool:
        """Whether bytes wait until the socket is writable."""
        return bool(self._rest)

    @property
    def ended(self) -> bool:
        """Whether TLS says that nothing more will come."""
        return self._tls is not None and self._tls.ended

    def send(self, raw: bytes) -> None:
        """Sends bytes now, or after those that wait. Raises OSError."""
        self._send(raw if self._tls is None else self._tls.wrapped(raw))

    def flush(self) -> None:
        """Sends the waiting bytes. Raises OSError."""
        rest, self._rest = self._rest, b""
        self._send(rest)

    def receive(self) -> bytes | None:
        """Bytes from the socket, as they are on the network; None if there are none. Raises OSError."""
        try:
            return self.socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return None

    def unwrapped(self, raw: bytes) -> bytes:
        """The received bytes without TLS. Raises OSError."""
        return raw if self._tls is None else self._tls.unwrapped(raw)

    def close(self) -> None:
        """Ends the connection for the server too, also when a forked child still has the socket."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _send(self, raw: bytes) -> None:
        """Keeps the bytes that the socket does not take. No caller waits for a server that does not read."""
        if self._rest:
            self._rest += raw
            return
        view = memoryview(raw)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except (BlockingIOError, InterruptedError):
                self._rest = bytes(view)
                return


class Tls:
    """TLS over buffers in memory: bytes of the network are put in and taken out by hand.

    ssl is imported here, late: most programs connect without TLS, and its import takes as long as all of this package.
    """

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        import ssl

        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._layer = context.wrap_bio(self._in, self._out, server_hostname=name)
        self._wants: tuple[type[ssl.SSLError], ...] = (ssl.SSLWantReadError, ssl.SSLSyscallError)
        self._over = ssl.SSLZeroReturnError
        #: Whether the server has ended TLS; it may wait for us to close the socket.
        self.ended = False

    def shake(self, connected: socket.socket) -> None:
        """The handshake, over a socket with a timeout. Raises OSError (ssl.SSLError is one)."""
        while True:
            try:
                self._layer.do_handshake()
                break
            except self._wants:
                connected.sendall(self._out.read())
                raw = connected.recv(_RECEIVE_BYTES)
                if not raw:
                    raise ConnectionResetError("Socket closed during the TLS handshake") from None
                self._in.write(raw)
            finally:
                if rest := self._out.read():
                    connected.sendall(rest)  # an alert, too
        if self._layer.selected_alpn_protocol() != "h2":
            raise ConnectionError(NOT_HTTP2)

    def wrapped(self, raw: bytes) -> bytes:
        """Bytes for the network."""
        if raw:
            self._layer.write(raw)
        return self._out.read()

    def unwrapped(self, raw: bytes) -> bytes:
        """Bytes from the network."""
        self._in.write(raw)
        found: list[bytes] = []
        while True:
            try:
                part = self._layer.read(_RECEIVE_BYTES)
            except self._wants:
                return b"".join(found)
            except self._over:
                part = b""
            if not part:
                self.ended = True
                return b"".join(found)
            found.append(part)


def opened(where: Target, context: ssl.SSLContext | None, timeout_s: float) -> Stream:
    """Connects to the first address that answers. Each has its share of the time. Raises OSError, of the last one."""
    until = monotonic() + timeout_s
    last: OSError = OSError(f"{where.authority} has no address")
    found = addresses(where)
    for index, address in enumerate(found):
        try:
            return _opened(where, address, context, max((until - monotonic()) / (len(found) - index), 0.01))
        except OSError as error:
            last = error
    raise last


# A socket with a timeout waits in `connect`, `recv` and `sendall`, each for so long; then it must not block any more.
def _opened(where: Target, address: Address, context: ssl.SSLContext | None, timeout_s: float) -> Stream:
    connecting = socket.socket(address[0])
    try:
        connecting.settimeout(timeout_s)
        connecting.connect(address[1])
        if not where.path:
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = Tls(context, where.host) if context is not None else None
        if tls is not None:
            tls.shake(connecting)
        connecting.setblocking(False)
    except BaseException:
        connecting.close()
        raise
    return Stream(connecting, tls)


class Selecting:
    """The interface of `select.poll()`, made from `select.select`: enough for the two descriptors of a connection."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    def register(self, waits: socket.socket, events: int) -> None:
        """Waits for these events of a socket from now on."""
        self._wanted[waits.fileno()] = events

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        """Descriptors, each with its events. An error shows as readable: the next read raises it."""
        reads = [descriptor for descriptor, events in self._wanted.items() if events & READ]
        writes = [descriptor for descriptor, events in self._wanted.items() if events & WRITE]
        readable, writable, broken = select.select(reads, writes, reads, timeout_ms / 1000)
        found = dict.fromkeys((*readable, *broken), READ)
        for descriptor in writable:
            found[descriptor] = found.get(descriptor, 0) | WRITE
        return list(found.items())


def poller() -> select.poll | Selecting:
    """Waits until sockets are ready: with poll, or with select where there is none (Windows; eventlet removes it)."""
    return select.poll() if hasattr(select, "poll") else Selecting()
