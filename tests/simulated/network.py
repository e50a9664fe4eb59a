"""Connections in memory: bytes arrive late and in pieces, connections are reset, and some lose all that is sent.

End.write ─▶ pieces of any size ─▶ Scheduler.later, in order ─▶ the protocol at the other end, in a turn of its loop
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from zlib import crc32

from tests.simulated.loop import Loop
from tests.simulated.scheduler import MS, US, S, Scheduler

#: How long bytes take: mostly so, and for the slow share of the pieces so.
DELAY_NS, SLOW_NS = (20 * US, 400 * US), (1 * MS, 60 * MS)
#: How often a write arrives in pieces.
SPLIT = 0.15
READ_BYTES = 64 << 10


class Network:
    """All connections, and the broker's port. `slow`: the share of slow pieces."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.ends: list[End] = []
        self._listener: Listener | None = None
        self._numbers = 0
        self.slow = 0.03

    def listen(self, loop: Loop, factory: Callable[[], Any]) -> Listener:
        self._listener = Listener(loop, factory)
        return self._listener

    async def connect(self, loop: Loop, factory: Callable[[], Any]) -> tuple[End, Any]:
        """Connects to the port. Raises ConnectionRefusedError."""
        answered = loop.create_future()
        loop.call_later(self.scheduler.between(*DELAY_NS) / S, answered.cancel)
        await asyncio.wait([answered])
        listener = self._listener
        if listener is None or listener.closed or listener.loop.process.killed:
            raise ConnectionRefusedError(111, "Connection refused")
        self._numbers += 1
        near, far = End(self, loop, f"{self._numbers}>"), End(self, listener.loop, f"{self._numbers}<")
        near.peer, far.peer = far, near
        self.ends += [near, far]

        def accepted() -> None:
            if listener.closed:
                far.abort()
            else:
                far.protocol = listener.factory()
                far.protocol.connection_made(far)

        near._send(accepted)
        near.protocol = factory()
        near.protocol.connection_made(near)
        return near, near.protocol

    def killed(self, process: Any) -> None:
        """The system closes the connections of a killed process."""
        for end in list(self.ends):
            if end.loop.process is process:
                end.gone = True
                self.ends.remove(end)
                end.peer.happens(end.peer.lost, ConnectionResetError(104, "Connection reset by peer"))


class Listener:
    """An open port."""

    def __init__(self, loop: Loop, factory: Callable[[], Any]) -> None:
        self.loop, self.factory, self.closed = loop, factory, False

    def close(self) -> None:
        self.closed = True


class End(asyncio.Transport):
    """One end of a connection, the transport of its protocol. `mute`: what it sends is lost."""

    peer: End

    def __init__(self, network: Network, loop: Loop, name: str) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.network, self.loop, self.name = network, loop, name
        self.protocol: Any = None
        self.gone = self.mute = self._closing = self._paused = False
        self._last_ns = self._unsent = 0
        self._most = 64 << 10
        self._full = False
        self._waiting: list[bytes] = []

    # ── What protocols call ──────────────────────────────────────────────────────────────────────────────────────────

    def write(self, data: Any) -> None:
        raw, random = bytes(data), self.network.scheduler.random
        if self.gone or self._closing or not raw:
            return
        while raw:
            size = len(raw) if random.random() >= SPLIT else random.randrange(len(raw)) + 1
            piece, raw = raw[: min(size, READ_BYTES)], raw[min(size, READ_BYTES) :]
            self._unsent += len(piece)
            self._send(self._arrives, piece)
        if self._unsent > self._most and not self._full:
            self._full = True
            self.protocol.pause_writing()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send(self.peer.ended)
            self.loop.call_soon(self.lost, None)

    def abort(self) -> None:
        if self.gone:
            return
        self._closing = True
        self.peer.happens(self.peer.lost, ConnectionResetError(104, "Connection reset by peer"))
        self.loop.call_soon(self.lost, None)

    def is_closing(self) -> bool:
        return self._closing or self.gone

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        waiting, self._waiting = self._waiting, []
        for piece in waiting:
            self.loop.call_soon(self.read, piece)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._most = high or self._most

    def get_write_buffer_size(self) -> int:
        return self._unsent

    # ── What the network does ────────────────────────────────────────────────────────────────────────────────────────

    def happens(self, event: Callable[..., object], *args: Any) -> None:
        """Something happens at this end after a delay, in a turn of its loop."""
        scheduler = self.network.scheduler

        def arrive() -> None:
            if not self.loop.process.killed and not self.loop.is_closed():
                self.loop.call_soon(event, *args)

        scheduler.later(self._delay_ns(), arrive)

    def _send(self, event: Callable[..., object], *args: Any) -> None:
        """Something of this end reaches the other one, after all that was sent before."""
        scheduler = self.network.scheduler
        self._last_ns = max(self._last_ns + 1, scheduler.now_ns + self._delay_ns())

        def arrive() -> None:
            peer = self.peer
            if not self.mute and not peer.gone and not peer.loop.process.killed and not peer.loop.is_closed():
                peer.loop.call_soon(event, *args)

        scheduler.later(self._last_ns - scheduler.now_ns, arrive)

    def _delay_ns(self) -> int:
        scheduler = self.network.scheduler
        return scheduler.between(*(SLOW_NS if scheduler.chance(self.network.slow) else DELAY_NS))

    def _arrives(self, piece: bytes) -> None:
        """In the loop of the other end."""
        self._unsent -= len(piece)
        if self._full and self._unsent <= self._most // 4 and not self.gone:
            self._full = False
            self.loop.call_soon(self.protocol.resume_writing)
        self.peer.read(piece)

    def read(self, piece: bytes) -> None:
        """The protocol gets bytes, unless it has paused."""
        if self.gone or self.protocol is None:  # the port was closed before it was accepted
            return
        if self._paused:
            self._waiting.append(piece)
            return
        self.network.scheduler.note(f"{self.name} {len(piece)} {crc32(piece):08x}")
        while piece:
            memory = self.protocol.get_buffer(len(piece))
            size = min(len(memory), len(piece))
            memory[:size] = piece[:size]
            self.protocol.buffer_updated(size)
            piece = piece[size:]

    def ended(self) -> None:
        """The other end was closed."""
        if not self.gone and not self.protocol.eof_received():
            self.close()

    def lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        if not self.gone:
            self.gone = True
            if self in self.network.ends:
                self.network.ends.remove(self)
            if self.protocol is not None:
                self.protocol.connection_lost(error)
