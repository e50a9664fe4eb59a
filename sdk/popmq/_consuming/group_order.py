"""Delivers the messages of one message group one after another. Pure: no clock; the caller holds a lock.

    buffered ──▶ delivered ──┬─ acked, or dead-lettered ───────────────▶ the next one may be delivered
                              └─ released, lost, dropped unsettled ─────▶ the later ones of its batch are forgotten

When a message fails, the broker takes back the later ones and delivers them again in order: their handles are no
longer valid.
"""

import weakref
from dataclasses import dataclass, field
from typing import Literal

from popmq._consuming.leased_batches import Batch, LeasedBatches
from popmq.message import Delivery

#: May a buffered delivery be delivered? "later": another of its message group is out. "never": its lease is lost.
When = Literal["now", "later", "never"]

#: Topic, group, message group.
Key = tuple[str, str, str]


@dataclass(eq=False, slots=True)
class _HandedOut:
    """The delivery of a message group that a handler has."""

    key: Key
    handle: str
    batch: Batch
    delivery: weakref.ref[Delivery]
    settling: bool = False  # the broker has been told the outcome and has not answered yet
    waiting: set[Batch] = field(default_factory=set)  # batches of other pops that wait for it


class MessageGroupOrder:
    """Which delivery of each message group is delivered, over all consumers of a client."""

    def __init__(self, leased_batches: LeasedBatches) -> None:
        self._leased_batches = leased_batches
        self._by_key: dict[Key, _HandedOut] = {}
        self._by_handle: dict[str, _HandedOut] = {}

    def hand_out(self, delivery: Delivery) -> When:
        """Hands a delivery out if its message group allows it.

        A delivery that is out and no longer referenced has failed: it cannot be settled.
        """
        if not delivery.line:
            return "now" if self._leased_batches.batch_of(delivery.handle) else "never"
        key = (delivery.topic, delivery.group, delivery.line)
        out = self._by_key.get(key)
        if out is not None:
            if out.settling or out.delivery() is not None:
                if batch := self._leased_batches.batch_of(delivery.handle):
                    out.waiting.add(batch)
                return "later" if batch else "never"
            self._end(out, failed=True)
        batch = self._leased_batches.batch_of(delivery.handle)
        if batch is None:
            return "never"
        if batch.runs:
            handed_out = _HandedOut(key, delivery.handle, batch, weakref.ref(delivery))
            self._by_key[key] = self._by_handle[delivery.handle] = handed_out
        return "now"

    def settling(self, handle: str) -> None:
        """The broker is being told how a delivery ended; `settled` follows with its answer."""
        if out := self._by_handle.get(handle):
            out.settling = True

    def left(self, handle: str) -> set[Batch]:
        """The handler of a delivery whose lease was lost has ended. Returns the batches that may continue."""
        out = self._by_handle.get(handle)
        return set() if out is None or out.settling else self.settled(handle, failed=True)

    def settled(self, handle: str, failed: bool) -> set[Batch]:
        """The broker has answered how a delivery ended. Returns the batches that may continue."""
        out = self._by_handle.get(handle)
        if out is None:
            return set()
        self._end(out, failed)
        return {out.batch, *out.waiting}

    def _end(self, out: _HandedOut, failed: bool) -> None:
        del self._by_handle[out.handle], self._by_key[out.key]
        if failed:
            self._leased_batches.drop_behind(out.batch, out.handle)
