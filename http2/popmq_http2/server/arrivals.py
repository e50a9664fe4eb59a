"""Which answers arrived. A handler may ask (`Call.add_arrival_callback`) whether its client got the whole answer.

    the last frame of the answer ─▶ waiting ── PING ─▶ asked ── its ACK ─▶ ARRIVED
                                       ├── RST_STREAM ───┤─────────────────▶ REFUSED
                                       └── no connection ┴─────────────────▶ LOST

A write only hands bytes to the system, and a connection may break with all of them. TCP keeps their order, so the ACK
of a PING that follows the answer shows that the client has read the answer. A client that gave up the call before it
had read the answer resets the stream before it reads the PING.

One PING is under way at a time: answers that end meanwhile share the next one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from popmq_http2.elapsed import monotonic
from popmq_http2.frames import PING, frame

#: The payload of these PINGs.
PAYLOAD = b"arrived?"
#: Answers that are followed at a time, each some hundred bytes. Those above count as arrived: a client that answers its
#: PINGs has fewer under way.
FOLLOWED_MAX = 1_000


class Arrival(enum.Enum):
    """What became of an answer. REFUSED: the client reset its stream, or its deadline passed."""

    ARRIVED = enum.auto()
    REFUSED = enum.auto()
    LOST = enum.auto()


Tell = Callable[[Arrival], Any]


class Arrivals:
    """The answers of one connection that were written and may still be lost. `asked_s`: when the open PING was sent."""

    def __init__(self, control: Callable[[bytes], None]) -> None:
        """`control`: sends a frame after the answers that were written."""
        self._control = control
        self._waiting: dict[int, Tell] = {}  # by stream
        self._asked: dict[int, Tell] = {}
        self.asked_s: float | None = None

    def written(self, stream_id: int, tell: Tell) -> None:
        """The last frame of an answer was written."""
        if len(self._waiting) >= FOLLOWED_MAX:
            tell(Arrival.ARRIVED)
            return
        self._waiting[stream_id] = tell
        if self.asked_s is None:
            self._ask()

    def _ask(self) -> None:
        self._asked, self._waiting = self._waiting, {}
        self.asked_s = monotonic()
        self._control(frame(PING, 0, 0, PAYLOAD))

    def acknowledged(self, payload: bytes) -> bool:
        """The client has answered a PING; returns whether it was this one."""
        if payload != PAYLOAD or self.asked_s is None:
            return False
        asked, self._asked, self.asked_s = self._asked, {}, None
        for tell in asked.values():
            tell(Arrival.ARRIVED)
        if self._waiting:
            self._ask()
        return True

    def refused(self, stream_id: int) -> None:
        """The client has reset a stream after its last frame was written."""
        tell = self._waiting.pop(stream_id, None) or self._asked.pop(stream_id, None)
        if tell is not None:
            tell(Arrival.REFUSED)

    def lost(self) -> None:
        """The connection has ended."""
        pending = (*self._asked.values(), *self._waiting.values())
        self._asked, self._waiting, self.asked_s = {}, {}, None
        for tell in pending:
            tell(Arrival.LOST)
