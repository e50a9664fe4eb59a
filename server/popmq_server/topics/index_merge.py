"""Merges small index blocks in the background: see index.py.

Some seconds after FRESH_MIN blocks were put each topic that got messages is looked at: what is new is counted, and
when there is enough for a wide block one is put, one in a transaction. What was counted is remembered in memory only;
after a restart it is counted again.
"""

from typing import NamedTuple

from popmq_server.state.jobs import POSTPONE_MS, Job, Timed
from popmq_server.state.space import GROW
from popmq_server.state.tx import Tx
from popmq_server.topics import index

#: How long after the last look, at least.
WIDEN_MS = 5_000
#: Index blocks of all topics that are worth a look.
FRESH_MIN = 256


class Tail(NamedTuple):
    """What of a topic is under no wide block: counted up to a position. `total`: what the topic had got then."""

    total: int
    seen: int
    blocks: int = 0
    names: int = 0


class Widening(Job):
    """When the next look is due, and what the last ones have counted."""

    name = "index blocks"

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._tails: dict[int, Tail] = {}
        self._due_ms = now_ms + WIDEN_MS
        self._more = False

    def next_ms(self, tx: Tx) -> int | None:
        """When to look next; None as long as little is new, so that an idle broker is idle."""
        return self._due_ms if self._more or tx.state.fresh_blocks >= FRESH_MIN else None

    def step(self, tx: Tx, did: Timed) -> None:
        if not tx.room.has(GROW):  # it stores names once more, and only makes looks faster
            self.postpone(tx.now_ms + POSTPONE_MS)
            return
        self._more = any(self._look_at(tx, topic.topic_id) for topic in list(tx.state.named_topics()))
        if not self._more:
            tx.state.fresh_blocks = 0
            self._due_ms = tx.now_ms + WIDEN_MS
            for deleted in [topic_id for topic_id in self._tails if topic_id not in tx.state.topics]:
                del self._tails[deleted]

    def _look_at(self, tx: Tx, topic_id: int) -> bool:
        """Counts what a topic has got; whether a wide block was put, which is a piece."""
        total = tx.state.total.get(topic_id, 0)
        tail = self._tails.get(topic_id)
        if tail is not None and tail.total == total:
            return False
        if tail is None:
            tail = Tail(total, index.said_up_to(tx.kv, topic_id))
        seen, blocks, names = tail[1:]
        for position, size, raw in index.blocks_from(tx, topic_id, seen):
            seen, blocks, names = position + size, blocks + 1, names + len(raw) // index.NAME.size
            if blocks == index.BLOCKS_MAX or names >= index.NAMES_MAX:
                self._tails.pop(topic_id, None)
                return index.widen(tx, topic_id)
        self._tails[topic_id] = Tail(total, seen, blocks, names)
        return False
