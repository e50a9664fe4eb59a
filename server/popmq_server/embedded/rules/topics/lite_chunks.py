"""The chunks of a LITE topic, oldest first: an index over the chunks of its lite topics, for its limit of bytes.

    lidx   T of the parent + position → T of the lite topic     put with the chunk (topic.py), removed with it

In the log the chunks of lite topics lie among those of all other topics, and `idx` has them by lite topic. Without this
index a search for the oldest ones would walk over the chunks of other topics, or over all lite topics.

    log    ▪ ann  □ busy  □ busy  □ busy  ▪ bob  □ busy  ▪ ann          lidx of chats:  ▪ ann  ▪ bob  ▪ ann

A store of an earlier preview has no index. A job then makes it, in pieces between the clients' commands, and notes in
`meta` how far it is; until then the limit drops only chunks that are in the index.
"""

from collections.abc import Iterator

from popmq_server.embedded.state.jobs import RETRY_MS, Job, Timed
from popmq_server.embedded.state.space import MOVE
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import LITE_INDEX, TOPIC_AT, U32
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.store import Store, reading

#: Topics and chunks that one piece of the job visits.
LOOKS_MAX = 1000


def put(tx: Tx, parent_id: int, position: int, topic_id: int) -> None:
    """Notes a chunk of a lite topic."""
    tx.kv.put("lidx", TOPIC_AT.pack(parent_id, position), U32.pack(topic_id))


def remove(tx: Tx, parent_id: int, position: int) -> None:
    """Removes the entry of a removed chunk; does nothing for parent 0."""
    if parent_id:
        tx.kv.delete("lidx", TOPIC_AT.pack(parent_id, position))


def scan(kv: Transaction, parent_id: int, start: int) -> Iterator[tuple[int, int]]:
    """(position, id of the lite topic) of the chunks of a LITE topic, from a position on."""
    for key, value in kv.scan("lidx", U32.pack(parent_id), TOPIC_AT.pack(parent_id, start)):
        yield TOPIC_AT.unpack(key)[1], U32.unpack(value)[0]


def is_complete(kv: Transaction) -> bool:
    """Whether the index has the chunks of all lite topics."""
    return (found := kv.get("meta", LITE_INDEX)) is not None and not len(found)


class Indexing(Job):
    """Makes the index in a store of an earlier preview.

    Each piece stores in `meta` the topic and position to continue at; the last piece stores an empty value.
    """

    name = "index of the chunks of lite topics"

    def next_ms(self, tx: Tx) -> int | None:
        return None if is_complete(tx.kv) else tx.now_ms

    def step(self, tx: Tx, work: Timed) -> None:
        if not tx.room.has(MOVE, LOOKS_MAX * TOPIC_AT.size):
            self.postpone(tx.now_ms + RETRY_MS)
            return
        tx.kv.put("meta", LITE_INDEX, _piece(tx, bytes(tx.kv.get("meta", LITE_INDEX) or TOPIC_AT.pack(0, 0))))


def jobs(store: Store) -> tuple[Job, ...]:
    """The job, unless the index is complete: a job is asked in each commit when it is due."""
    with reading(store) as kv:
        return () if is_complete(kv) else (Indexing(),)


def _piece(tx: Tx, wanted: bytes) -> bytes:
    """Visits some chunks of lite topics; returns the key to continue at, empty = there are no more."""
    cursor = tx.kv.cursor("idx")
    for _ in range(LOOKS_MAX):
        if not cursor.set_range(wanted):
            return b""
        topic_id, position = TOPIC_AT.unpack(cursor.key())
        if parent_id := tx.state.parent_of(topic_id):
            put(tx, parent_id, position, topic_id)
            wanted = TOPIC_AT.pack(topic_id, position + 1)
        else:
            wanted = TOPIC_AT.pack(topic_id + 1, 0)
    return wanted
