"""The port of a console: how many connections there are, and how long a request may take to arrive.

    accept ──▶ Port        one connection too many, of its address or of all: ends the oldest silent one, or itself
           ──▶ Connection  a request that is not complete after REQUEST_S, an answer that is not read: closed

A connection is silent until its first request has come whole. So those that send nothing keep no visitor out.

uvicorn itself ends only a connection that is idle after an answer. Its own limit of connections counts all addresses
together, answers 503 to everybody beyond it, and does not count TLS handshakes that are under way.
"""

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from popmq_console.attempts import counted

#: With logins.LOGINS_MAX it is less than the 1,024 files that a process may open by default.
CONNECTIONS_MAX = 500
#: A browser opens up to six.
CONNECTIONS_PER_ADDRESS = 100
#: Connections that were asked to end and are not closed yet.
ENDING_MAX = 50
#: Seconds for a request from its first byte to its last, for the next one to begin, and for a reader to read on.
REQUEST_S = 20.0


class Accepted(socket.socket):
    """A connection that calls `left` once, when it ends, and `closed` when it is closed."""

    left: Callable[[], None] | None = None
    closed: Callable[[], None] | None = None

    def end(self) -> None:
        """From here on it has no place; the event loop reads its end, and closes it."""
        self._leave()
        with contextlib.suppress(OSError):  # the client was faster
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Also when it was closed before."""
        super().close()
        self._leave()
        closed, self.closed = self.closed, None
        if closed:
            closed()

    def _leave(self) -> None:
        left, self.left = self.left, None
        if left:
            left()


class Port(socket.socket):
    """A socket that listens; it shares the places with those of other hosts."""

    def __init__(self, opened: socket.socket, places: "Places") -> None:
        super().__init__(opened.family, opened.type, opened.proto, opened.detach())
        self._places = places

    def accept(self) -> tuple[Accepted, Any]:
        """A new connection. Raises ConnectionAbortedError for one too many, which it closes: asyncio then goes on."""
        connection, name = super().accept()
        taken = Accepted(connection.family, connection.type, connection.proto, connection.detach())
        self._places.take(taken, name[0])
        return taken, name


class Places:
    """At most `per_address` connections of an address, over all hosts of the console."""

    def __init__(self, per_address: int = CONNECTIONS_PER_ADDRESS) -> None:
        self._per_address = per_address
        self._open: Counter[str] = Counter()
        #: The silent connections by the number of their file, the oldest first, each with its address.
        self._silent: dict[int, tuple[str, Accepted]] = {}
        self._ending = 0

    def take(self, taken: Accepted, client: str) -> None:
        """Counts a connection. Raises ConnectionAbortedError for one too many, which it closes."""
        address, number = "", taken.fileno()
        with contextlib.suppress(ValueError):
            address = counted(client)
        if not self._has_place(address):
            taken.close()
            raise ConnectionAbortedError("too many connections")
        self._open[address] += 1
        self._silent[number] = address, taken
        taken.left = lambda: self._leave(address, number)

    def asked(self, number: int) -> None:
        """A request has come on the connection with this number of its file."""
        self._silent.pop(number, None)

    def _has_place(self, address: str) -> bool:
        """Whether there is a place for another connection of the address; ends a silent one for it."""
        of_address = self._open[address] >= self._per_address
        if not of_address and self._open.total() < CONNECTIONS_MAX:
            return True
        if self._ending >= ENDING_MAX:
            return False
        for whose, silent in self._silent.values():
            if whose == address or not of_address:
                self._end(silent)
                return True
        return False

    def _end(self, silent: Accepted) -> None:
        self._ending += 1
        silent.closed = self._ended
        silent.end()

    def _ended(self) -> None:
        self._ending -= 1

    def _leave(self, address: str, number: int) -> None:
        self.asked(number)
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class Connection(H11Protocol):
    """uvicorn's connection, with times, which reports its requests to the places."""

    def __init__(self, places: Places, **given: Any) -> None:
        super().__init__(**given)
        self._places = places

    _arriving: asyncio.TimerHandle | None = None  # while a request is awaited
    _leaving: asyncio.TimerHandle | None = None  # while the client does not read the answer
    _begun = False  # whether the first byte of the awaited request has come

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._arriving = self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._arriving)
        _stop(self._leaving)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._begun and self._arriving:
            _stop(self._arriving)
            self._arriving = self._await_request()
        self._begun = True
        super().data_received(data)

    def handle_events(self) -> None:
        """After each piece of a request, and after each answer."""
        super().handle_events()
        if self.cycle is not None:
            self._places.asked(self.transport.get_extra_info("socket").fileno())
        answering = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if answering:
            _stop(self._arriving)
            self._arriving, self._begun = None, False
        elif self._arriving is None:
            self._arriving = self._await_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._leaving = self._leaving or self.loop.call_later(REQUEST_S, self._reset)

    def resume_writing(self) -> None:
        super().resume_writing()
        _stop(self._leaving)
        self._leaving = None

    def _await_request(self) -> asyncio.TimerHandle:
        return self.loop.call_later(REQUEST_S, self.transport.abort)

    def _reset(self) -> None:
        """Ends it without waiting until everything is read, in the kernel too, which holds megabytes."""
        at_once = struct.pack("ii", 1, 0)
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.transport.abort()


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer:
        timer.cancel()
