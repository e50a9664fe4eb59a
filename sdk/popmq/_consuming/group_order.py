"""Delivers the messages of one message group one after another. Pure: no clock; the caller holds a lock.

    buffered ──▶ delivered ──┬─ acked, or dead-lettered ───────────────▶ the next one may be delivered
                              └─ released, lost, dropped unsettled ─────▶ the later ones of its batch are forgotten

When a message fails, the broker releases the later ones and delivers them again in order: their handles are no longer
valid.
"""

import weakref
from dataclasses import dataclass, field
from typing import Literal

from popmq._consuming.leased_batches import Batch, LeasedBatches
from popmq.message import Delivery

#: May a buffered delivery be delivered? "later": a handler has another of its message group. "never": its lease is
#: lost.
When = Literal["now", "later", "never"]

#: Topic, group, message group.
Key = tuple[str, str, str]


@dataclass(eq=False, slots=True)
class _Delivered:
    """The delivery of a message group that a handler has."""

    key: Key
    handle: str
    batch: Batch
    delivery: weakref.ref[Delivery]
    settling: bool = False  # its outcome was sent to the broker, which has not answered yet
    waiting: set[Batch] = field(default_factory=set)  # batches of other pops that wait for it


class MessageGroupOrder:
    """Which delivery of each message group is delivered, over all consumers of a client."""

    def __init__(self, leased_batches: LeasedBatches) -> None:
        self._leased_batches = leased_batches
        self._by_key: dict[Key, _Delivered] = {}
        self._by_handle: dict[str, _Delivered] = {}

    def may_deliver(self, delivery: Delivery) -> When:
        """Whether a delivery may go to a handler; with "now" it counts as delivered.

        A delivered one that is no longer referenced has failed: it cannot be settled.
        """
        if not delivery.order_key:
            return "now" if self._leased_batches.batch_of(delivery.handle) else "never"
        key = (delivery.topic, delivery.group, delivery.order_key)
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
            delivered = _Delivered(key, delivery.handle, batch, weakref.ref(delivery))
            self._by_key[key] = self._by_handle[delivery.handle] = delivered
        return "now"

    def settling(self, handle: str) -> None:
        """The outcome of a delivery is being sent to the broker; `settled` follows with its answer."""
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

    def _end(self, out: _Delivered, failed: bool) -> None:
        del self._by_handle[out.handle], self._by_key[out.key]
        if failed:
            self._leased_batches.drop_behind(out.batch, out.handle)
