"""Merges small index blocks in the background: see index.py.

After FRESH_MIN new blocks, and at least MERGE_EVERY_MS after the last round, the job visits each topic with new
messages: it counts the new blocks, and puts a wide block if there are enough, at most one per transaction. The counts
are in memory only; after a restart it counts again.

See docs/decisions/0008-look-ups-by-sorted-blocks.md.
"""

from typing import Any, NamedTuple

from popmq_server.embedded.rules.topics import index
from popmq_server.embedded.rules.topics.topic_round import TopicRound
from popmq_server.embedded.state.jobs import POSTPONE_MS, Job, Timed
from popmq_server.embedded.state.space import GROW
from popmq_server.embedded.state.tx import Tx

#: Minimum time between two rounds.
MERGE_EVERY_MS = 5_000
#: Minimum of new index blocks, of all topics together, for a round.
FRESH_MIN = 256


class Tail(NamedTuple):
    """The blocks of a topic without a wide block, counted up to position `seen`. `total`: the topic's messages then."""

    total: int
    seen: int
    blocks: int = 0
    names: int = 0


class MergingBlocks(Job):
    """The job that puts wide blocks. Keeps the counts of earlier rounds."""

    name = "index blocks"

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._tails: dict[int, Tail] = {}
        self._round = TopicRound()
        self._due_ms = now_ms + MERGE_EVERY_MS
        self._more = False

    def next_ms(self, tx: Tx) -> int | None:
        """When the next round is due; None while few blocks are new, so an idle broker does nothing."""
        return self._due_ms if self._more or tx.state.fresh_blocks >= FRESH_MIN else None

    def place(self) -> Any:
        return self._due_ms, self._more, self._round.place

    def go_back(self, place: Any) -> None:
        self._due_ms, self._more, self._round.place = place

    def step(self, tx: Tx, work: Timed) -> None:
        if not tx.room.has(GROW):  # wide blocks need space and only make look-ups faster
            self.postpone(tx.now_ms + POSTPONE_MS)
            return
        merged = next((topic for topic in self._round.piece(tx) if self._look_at(tx, topic.topic_id)), None)
        if merged is not None:
            self._round.back_to(merged)
        self._more = self._round.more
        if not self._more:
            tx.state.fresh_blocks = 0
            self._due_ms = tx.now_ms + MERGE_EVERY_MS
            for deleted in [topic_id for topic_id in self._tails if topic_id not in tx.state.topics]:
                del self._tails[deleted]

    def _look_at(self, tx: Tx, topic_id: int) -> bool:
        """Counts the new blocks of a topic; returns whether it put a wide block, which ends the piece."""
        total = tx.state.total.get(topic_id, 0)
        tail = self._tails.get(topic_id)
        if tail is not None and tail.total == total:
            return False
        if tail is None:
            tail = Tail(total, index.covered_up_to(tx.kv, topic_id))
        seen, blocks, names = tail[1:]
        for position, size, raw in index.blocks_from(tx, topic_id, seen):
            seen, blocks, names = position + size, blocks + 1, names + len(raw) // index.NAME.size
            if blocks == index.BLOCKS_MAX or names >= index.NAMES_MAX:
                self._tails.pop(topic_id, None)
                return index.merge_blocks(tx, topic_id)
        self._tails[topic_id] = Tail(total, seen, blocks, names)
        return False
