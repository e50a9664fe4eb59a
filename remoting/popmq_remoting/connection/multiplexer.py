"""Many calls on one connection, without a socket: numbers requests, matches answers, counts what is under way.

    send ─▶ pending[opaque] ─▶ take: the bytes of all requests of this turn         feed ─▶ pending[opaque] ─▶ done
                                                                                      └──▶ requests of the broker

An answer whose number nobody waits for is left out: its call ended by its deadline, or the broker made it up. So an
answer never reaches another call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from popmq_remoting.codes import HeaderFlag
from popmq_remoting.connection.limits import PeerLimits
from popmq_remoting.errors import ConnectionLost, RemotingError, TooBusy
from popmq_remoting.wire import frames
from popmq_remoting.wire.command import Command, Request, Response

_OPAQUE_MAX = (1 << 31) - 1

#: Called once with what came of a request.
Done = Callable[[Response | RemotingError], None]


class _Pending(NamedTuple):
    done: Done
    size: int


class Multiplexer:
    """The calls of one connection."""

    def __init__(self, limits: PeerLimits) -> None:
        self._limits = limits
        self._reader = frames.CommandReader()
        self._pending: dict[int, _Pending] = {}
        self._opaque = 0
        self._written: list[bytes] = []
        self._written_bytes = 0
        self._pending_bytes = 0
        #: Answers that nobody waited for.
        self.unmatched = 0

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return len(self._pending)

    def send(self, request: Request, done: Done, held: int = 0) -> int:
        """Numbers a request; `take` returns its bytes. `held`: bytes that the transport has not sent yet.

        Raises TooBusy if too much is under way, BadFormat if the request is too large for a frame.
        """
        if len(self._pending) >= self._limits.in_flight:
            raise TooBusy(f"{len(self._pending)} requests are under way", self._limits.busy_retry_ms)
        opaque = self._next()
        raw = frames.write(request.code, opaque, 0, request.fields, request.body)
        if max(self._pending_bytes, self._written_bytes + held) + len(raw) > self._limits.in_flight_bytes:
            raise TooBusy(f"requests of {self._limits.in_flight_bytes} bytes are under way", self._limits.busy_retry_ms)
        self._pending[opaque] = _Pending(done, len(raw))
        self._pending_bytes += len(raw)
        self._write(raw)
        return opaque

    def send_oneway(self, request: Request) -> None:
        """A request that is never answered."""
        self._write(frames.write(request.code, self._next(), HeaderFlag.ONEWAY, request.fields, request.body))

    def answer(self, command: Command, answer: Response) -> None:
        """Answers a request of the broker."""
        self._write(
            frames.write(answer.code, command.opaque, HeaderFlag.RESPONSE, answer.fields, answer.body, answer.remark)
        )

    def forget(self, opaque: int) -> None:
        """Nobody waits for this answer any longer."""
        pending = self._pending.pop(opaque, None)
        if pending is not None:
            self._pending_bytes -= pending.size

    def feed(self, data: bytes) -> Iterator[Command]:
        """Ends the calls that these bytes answer; the requests of the broker among them. Raises BadFormat."""
        for command in self._reader.feed(data):
            if not command.is_answer:
                yield command
                continue
            pending = self._pending.get(command.opaque)
            if pending is None:
                self.unmatched += 1
            else:
                self.forget(command.opaque)
                pending.done(command.response())

    def take(self) -> bytes:
        """All bytes that were written since the last time."""
        raw = b"".join(self._written)
        self._written.clear()
        self._written_bytes = 0
        return raw

    def fail(self, text: str) -> None:
        """The connection is gone: each call ends with a ConnectionLost of its own, which gets its traceback."""
        pending = list(self._pending.values())
        self._pending.clear()
        self._pending_bytes = 0
        for each in pending:
            each.done(ConnectionLost(text))

    def _next(self) -> int:
        """A number that no pending request has."""
        self._opaque = self._opaque % _OPAQUE_MAX + 1
        while self._opaque in self._pending:
            self._opaque = self._opaque % _OPAQUE_MAX + 1
        return self._opaque

    def _write(self, raw: bytes) -> None:
        self._written.append(raw)
        self._written_bytes += len(raw)
