"""Whose turn it is: messages of one message group are handed out one after another. Pure: no clock; its caller locks.

    buffered ──▶ handed out ──┬─ acked, or a dead letter ───────────▶ the next one's turn
                              └─ released, lost, dropped unsettled ──▶ those behind it in its batch are dropped

The broker takes back what stands behind a failure, and delivers it again in order: those handles are dead already.
"""

import weakref
from dataclasses import dataclass, field
from typing import Literal

from popmq._hand import Batch, Hand
from popmq.message import Delivery

#: May a buffered delivery be handed out: now; later, for one of its message group is out; never, for it is over.
When = Literal["now", "later", "never"]

#: Topic, group, message group.
Key = tuple[str, str, str]


@dataclass(eq=False, slots=True)
class _Turn:
    key: Key
    handle: str
    batch: Batch
    delivery: weakref.ref[Delivery]
    asked: bool = False  # how it ended is being told, and the broker's answer decides
    waiting: set[Batch] = field(default_factory=set)  # those of others that it keeps waiting


class Turns:
    """What is out of each message group, in all consumers of a client."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand
        self._by_key: dict[Key, _Turn] = {}
        self._by_handle: dict[str, _Turn] = {}

    def begin(self, delivery: Delivery) -> When:
        """Hands a delivery out, if it may be. One that nobody can settle any more has failed: its turn is over."""
        if not delivery.line:
            return "now" if self._hand.batch_of(delivery.handle) else "never"
        key = (delivery.topic, delivery.group, delivery.line)
        out = self._by_key.get(key)
        if out is not None:
            if out.asked or out.delivery() is not None:
                if batch := self._hand.batch_of(delivery.handle):
                    out.waiting.add(batch)
                return "later" if batch else "never"
            self._end(out, failed=True)
        batch = self._hand.batch_of(delivery.handle)
        if batch is None:
            return "never"
        if batch.runs:
            turn = _Turn(key, delivery.handle, batch, weakref.ref(delivery))
            self._by_key[key] = self._by_handle[delivery.handle] = turn
        return "now"

    def asked(self, handle: str) -> None:
        """How a delivery ended is being told; `over` comes with the answer."""
        if turn := self._by_handle.get(handle):
            turn.asked = True

    def left(self, handle: str) -> set[Batch]:
        """Its handler is done with a delivery that was lost; the batches that may go on."""
        turn = self._by_handle.get(handle)
        return set() if turn is None or turn.asked else self.over(handle, failed=True)

    def over(self, handle: str, failed: bool) -> set[Batch]:
        """The broker knows how a delivery ended; the batches that may go on."""
        turn = self._by_handle.get(handle)
        if turn is None:
            return set()
        self._end(turn, failed)
        return {turn.batch, *turn.waiting}

    def _end(self, turn: _Turn, failed: bool) -> None:
        del self._by_handle[turn.handle], self._by_key[turn.key]
        if failed:
            self._hand.drop_behind(turn.batch, turn.handle)
