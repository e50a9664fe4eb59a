"""Publishes the messages of committed batches, and removes those of dropped stages.

    publish   ▲ 7: stage 3   ▲ 8: stage 5   ▲ 9: stage 4, dropped …     in the order of the commits
                │
                └─▶ stage 3: ▪▪▪▪▪▪▪▪   one piece a transaction: some blocks are appended to their queues and deleted

The append and the delete of a block share one transaction, so each message gets into its queue once, whenever the
broker is killed. A block for which the store has no room waits, as delayed messages do (release_delayed.py): the commit
has promised its messages, so they cannot be refused any more. One that finds no adjacent pages does not block others.

Each piece is bounded, and the writer runs it between client commands: a batch of a million messages delays no client.
"""

import itertools

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.sending import delay, stages, unique
from popmq_server.embedded.rules.sending.placing import Placing, is_plain
from popmq_server.embedded.rules.topics import quarantine
from popmq_server.embedded.rules.topics.topic import enqueue, rotate
from popmq_server.embedded.state.jobs import RETRY_MS, Job, Timed
from popmq_server.embedded.state.space import GROW, messages_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import PUBLISH_KEY
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import Topic

#: Bounds of one piece: some 5 ms of the writer. One block is always allowed.
PUBLISH_MESSAGES_MAX = 1000
PUBLISH_BYTES_MAX = 1 << 20
#: Blocks of a dropped stage that one piece removes.
DROP_BLOCKS_MAX = 100


class Publishing(Job):
    """One step works on the first stage of the list that is not postponed."""

    name = "staged messages"
    moved_by = frozenset({"publish"})

    def next_ms(self, tx: Tx) -> int | None:
        """Now, while there is a stage in the list; later if each of them is postponed."""
        if next(tx.kv.scan_keys("publish"), None) is None:  # the usual case, and every commit asks
            return None
        if self._first(tx) is not None:
            return tx.now_ms
        return min((self.not_before(PUBLISH_KEY.unpack(key)[0]) for key in tx.kv.scan_keys("publish")), default=None)

    def step(self, tx: Tx, work: Timed) -> None:
        key = self._first(tx)
        if key is None:
            return
        order = PUBLISH_KEY.unpack(key)[0]
        self.alone = order if self.at_most(PUBLISH_MESSAGES_MAX) == 1 else None
        with self.apart(order):
            if not self._piece(tx, key):
                self.postpone(tx.now_ms + RETRY_MS)

    def _first(self, tx: Tx) -> bytes | None:
        """The first stage that is not postponed. Stages are postponed one by one only after a fault."""
        keys = (key for key in tx.kv.scan_keys("publish"))
        return next((key for key in keys if not self.waits(tx, PUBLISH_KEY.unpack(key)[0])), None)

    def _piece(self, tx: Tx, key: bytes) -> bool:
        """Publishes or drops some blocks of a stage; returns False if there is no room for one."""
        raw = tx.kv.get("publish", key)
        assert raw is not None
        number, topic_id, publish = stages.PUBLISH.unpack(raw)
        if max(number, PUBLISH_KEY.unpack(key)[0]) >= tx.state.counters[""].stage_id:
            broken("stage_number_given", ("publish", key), number=number)
        topic = tx.state.topics.get(topic_id) if publish else None
        if topic is None:
            blocks = self._dropped(tx, number)
        else:
            blocks = self._fitting(tx, number)
            if not blocks and tx.room.short:
                return False
            if not blocks:
                broken("published_stage_has_messages", ("publish", key), number=number)
            _publish(tx, topic, number, blocks)
        stages.remove_blocks(tx, key, number, [block for block, _ in blocks])
        return True

    def _dropped(self, tx: Tx, number: int) -> list[tuple[bytes, bytes]]:
        """Keys of the next blocks to remove."""
        rows = tx.kv.scan("stage", stages.pieces_of(number))
        return [(key, b"") for key, _ in itertools.islice(rows, self.at_most(DROP_BLOCKS_MAX))]

    def _fitting(self, tx: Tx, number: int) -> list[tuple[bytes, bytes]]:
        """The next blocks that fit the bounds of a piece and the free room; each is stored a second time."""
        messages_max, bytes_max = self.at_most(PUBLISH_MESSAGES_MAX), self.at_most(PUBLISH_BYTES_MAX)
        found: list[tuple[bytes, bytes]] = []
        messages = size = 0
        for key, raw in tx.kv.scan("stage", stages.pieces_of(number)):
            size += len(raw)
            messages += stages.BLOCK_MESSAGES_MAX
            if found and (size > bytes_max or messages > messages_max):
                break
            if not tx.room.has(GROW, messages_bytes([2 * size])):
                break
            found.append((key, bytes(raw)))
        return found


def _publish(tx: Tx, topic: Topic, number: int, blocks: list[tuple[bytes, bytes]]) -> None:
    """Appends the messages of blocks to their queues, or keeps them until they are due; skips known ids."""
    messages = tuple(itertools.chain.from_iterable(_messages(tx, topic, number, raw) for _, raw in blocks))
    if is_plain(topic, messages):
        enqueue(tx, topic, rotate(tx, topic), messages)
    else:
        _place(tx, topic, messages)


def _place(tx: Tx, topic: Topic, messages: tuple[Outgoing, ...]) -> None:
    """Places each message by the type of its topic, its time and its id."""
    visible: list[tuple[int, Outgoing]] = []
    ids = unique.Ids(tx, topic)
    for index, message in enumerate(messages):
        if topic.unique_ids_ms and (ids.first(message, index) != index or ids.known(message)):
            continue
        if (kept := delay.keep(tx, topic, message)) is not None:
            ids.remember(message, kept)
        else:
            visible.append((index, message))
    for (_, message), stored in zip(visible, Placing(tx, topic).make_visible(visible), strict=True):
        ids.remember(message, stored)


def _messages(tx: Tx, topic: Topic, number: int, raw: bytes) -> list[Outgoing]:
    """The messages of a block; a damaged block goes to quarantine, so that it does not block the others."""
    messages = stages.read_block(raw)
    if messages is None:
        quarantine.set_aside_pending(tx, topic.topic_id, number, raw)
    return messages or []
