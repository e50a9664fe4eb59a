"""A listening socket that keeps one file in reserve, so that connections beyond the limit of open files are closed.

    accept ──▶ no file is free ──▶ close the reserve ──▶ accept, close the connection ──▶ open the reserve again

Without it such connections stay in the queue of the system, and asyncio tries again and again: it sets a timer for each
of the attempts of one turn, and each timer makes as many attempts. Their number grows without bound, and each writes a
traceback to the log.

It can also bound the connections of an address from their first moment on: those of TLS are known to their protocol,
which counts them (addresses.py), only after the handshake.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import weakref
from typing import Any

from popmq_http2.elapsed import monotonic
from popmq_http2.server.addresses import counted

log = logging.getLogger("popmq_http2")

#: Errors of `accept` that say that the process, or the system, has no file left.
_NO_FILES = (errno.EMFILE, errno.ENFILE)
#: Seconds between two lines of the log about closed connections.
_QUIET_S = 60.0
#: Connections that are closed at once in one turn; and addresses before those without any are forgotten, at least.
_CLOSED_AT_ONCE, _ADDRESSES_MAX = 32, 10_000


class Listening(socket.socket):
    """A listening socket in place of `bound`, which is detached."""

    def __init__(self, bound: socket.socket, most: int = 0) -> None:
        """`most`: connections of an address that may be open; 0: any number."""
        super().__init__(fileno=bound.detach())
        self._most = most
        self._accepted: dict[str, weakref.WeakSet[socket.socket]] = {}
        self._addresses_max = _ADDRESSES_MAX
        self._reserve = _reserve()
        self._ends_turn = False
        #: Whether it accepts no more, although it is open: a connection whose accept asyncio has not completed when its
        #: server closes would stay open, with nothing that closes it (CPython 3.11: `Server._attach` asserts).
        self.refuses = False
        self._said: float | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises BlockingIOError after a connection that was closed, and once it refuses: asyncio then waits."""
        if self.refuses:
            raise BlockingIOError
        if self._ends_turn:  # asyncio has set its timer: a second attempt of the turn would set another
            self._ends_turn = False
            raise BlockingIOError
        if self._reserve is None:
            self._reserve = _reserve()
        try:
            for _ in range(_CLOSED_AT_ONCE):
                accepted, name = super().accept()
                if self._admits(accepted, name):
                    return accepted, name
                accepted.close()
            raise BlockingIOError
        except OSError as error:
            if error.errno not in _NO_FILES:
                raise
            if not self._turn_away():
                self._ends_turn = True
                raise
            raise BlockingIOError from error

    def _admits(self, accepted: socket.socket, name: Any) -> bool:
        """Whether its address may have this connection. Which of them are closed is looked at when there are many."""
        if not self._most or not isinstance(name, tuple):
            return True
        if len(self._accepted) >= self._addresses_max:
            self._accepted = {address: some for address, some in self._accepted.items() if some}
            self._addresses_max = max(_ADDRESSES_MAX, 2 * len(self._accepted))
        opened = self._accepted.setdefault(counted(name[0]), weakref.WeakSet())
        if len(opened) >= self._most:
            opened -= {one for one in opened if one.fileno() < 0}
        if len(opened) >= self._most:
            return False
        opened.add(accepted)
        return True

    def _turn_away(self) -> bool:
        """Accepts and closes one connection; False if there is no reserve, because another thread took the file."""
        if self._reserve is None:
            return False
        if self._said is None or monotonic() - self._said > _QUIET_S:
            self._said = monotonic()
            log.error("new connections are closed: all files that the process may open are in use (ulimit -n)")
        os.close(self._reserve)
        with contextlib.suppress(OSError):
            super().accept()[0].close()
        self._reserve = _reserve()
        return True

    def close(self) -> None:
        super().close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None


def _reserve() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
