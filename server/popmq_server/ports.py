"""Opens one port on several hosts: on all, or on none. Or takes what another process has opened."""

import errno
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from popmq_server.errors import StartError
from popmq_server.options import Unnamed, is_any

T = TypeVar("T")

#: Connections that the system queues: clients that come together wait less than a second.
_BACKLOG = 1024
#: What an operator may name where a port cannot be opened.
PORT_CURE, TLS_PORT_CURE = "--port or --host", "--tls-port or --host; --tls-port 0 serves no TLS"
HTTP_PORT_CURE = "--http-port or --host; --http-port 0 serves no HTTP"


class NotOpened(Exception):
    """`host`: where the port could not be opened. `why`: None if that is not known."""

    def __init__(self, host: str, why: Exception | None = None) -> None:
        super().__init__(_said(why))
        self.host, self.why = host, why
        #: Whether somebody else has the port.
        self.is_taken = isinstance(why, OSError) and why.errno == errno.EADDRINUSE


def _said(why: Exception | None) -> str:
    """Returns the message of the system without the address that socket adds. Numbers of name look-ups are negative."""
    if not isinstance(why, OSError):
        return str(why or "")
    said = os.strerror(why.errno) if why.errno and why.errno > 0 else why.strerror or str(why)
    elsewhere = isinstance(why, socket.gaierror) or why.errno == errno.EADDRNOTAVAIL
    return f"the host is not an address of this machine ({said})" if elsewhere else said


def opened(hosts: Iterable[str], port: int) -> list[socket.socket]:
    """Listening sockets. Port 0 is any free one, of the first host; the others get the same. Raises NotOpened."""
    found: list[socket.socket] = []
    for host in hosts:
        try:
            found.append(_opened(host, found[0].getsockname()[1] if found else port))
        except OSError as error:
            close(found)
            raise NotOpened(host, error) from error
    return found


def close(sockets: Iterable[socket.socket]) -> None:
    """Gives the port back."""
    for one in sockets:
        one.close()


def _opened(host: str, port: int) -> socket.socket:
    """`::` is of both families. `reuse_port` stays off: a second broker must not open the same port."""
    port = int(port)  # from Python 3.13 on getaddrinfo refuses subclasses of int
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    both = family == socket.AF_INET6 and is_any(host)
    return socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)


class Ports:
    """Where a process gets its listening sockets from: it opens them itself."""

    #: Whether other processes accept connections from the same sockets.
    are_shared = False

    def opened(self, hosts: Iterable[str], port: int) -> list[socket.socket]:
        """As the function `opened`."""
        return opened(hosts, port)


class Inherited(Ports):
    """Sockets that the process got at its start: `files` has their numbers, by port."""

    are_shared = True

    def __init__(self, files: Mapping[int, Sequence[int]]) -> None:
        self._files = files

    def opened(self, hosts: Iterable[str], port: int) -> list[socket.socket]:
        return [socket.socket(fileno=number) for number in self._files[port]]


def bound(bind: Callable[[tuple[str, ...], int], T], hosts: tuple[str, ...], port: int, what: str, cure: str) -> T:
    """What `bind` returns. Raises StartError, whose cause is an OSError if it is known what failed."""
    try:
        return bind(hosts, port)
    except NotOpened as error:
        why = f"{_unbound(error)} name another with {cure}"
        raise StartError(f"{what} {port} on {error.host} cannot be opened: {why}") from error.why


def is_left_out(port: int, error: StartError) -> bool:
    """Whether a broker starts without this port: nobody named it, and another program has it."""
    cause = error.__cause__
    return isinstance(port, Unnamed) and isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE


def _unbound(error: NotOpened) -> str:
    """Why a port was not bound, as the beginning of a sentence; grpcio does not say."""
    if isinstance(error.why, OSError) and not error.is_taken:
        return f"{error};"
    elsewhere = "" if error.is_taken else ", or the host is not an address of this machine"
    return f"it is in use, perhaps by another PopMQ{elsewhere}; stop that one, or"
