"""Unique ids: a topic stores a message id once within its `unique_ids_ms`; a repeated Send gets the first place.

    uid   T + end of the bucket in seconds [4] + hash16(id)  →  stored ms, queue, offset, kind, name

    ──┬───────────┬───────────┬───────────┬──▶ time         a bucket spans half of unique_ids_ms
      old         │◀── unique_ids_ms ─────┼─▶ now           three buckets can hold ids that are still valid
      swept       look-ups                puts

An id costs one random key, which ordinary topics do not pay. Measured, 1,000 messages a commit, 2 cores:

    messages/s                    ordinary topic    ids compared, none yet    with 1,000,000 ids
    without fsync                 428,000           95,000                    52,000
    with fsync                    209,000           40,000                    30,000

and some 100 bytes of the store per id. Housekeeping removes outdated buckets from the front, in bounded pieces.

A bucket's key holds its end, so its ids stay valid if `unique_ids_ms` changes: a shorter time ignores older ids at
once, a longer one still finds ids that were not swept yet. A message that never became visible (recalled, rolled back)
releases its id.

See docs/decisions/0033-unique-ids.md.
"""

import struct

from popmq_server.contract.commands import Place
from popmq_server.embedded.rules.topics.walks import TopicRound
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import U32, hash16
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import Topic

#: Ids that one piece of housekeeping removes.
SWEEP_MAX = 2000

#: T, end of the bucket in seconds; then the hash of the id.
KEY_HEAD = struct.Struct(">II")
#: stored ms, queue, offset, kind; then the recall handle or the transaction id.
VALUE = struct.Struct(">QHQB")
_VISIBLE, _DELAYED, _HALF = 0, 1, 2


class Ids:
    """The known ids of a request's topic: its valid buckets, and the ids within the request itself."""

    def __init__(self, tx: Tx, topic: Topic) -> None:
        self._tx = tx
        self._topic = topic
        self._numbers: dict[str, int] = {}
        self._buckets = _buckets(tx, topic) if topic.unique_ids_ms else []

    def first(self, message: Outgoing, number: int) -> int:
        """The number of the request's first message with this id: its own, if it is the first."""
        return self._numbers.setdefault(message.message_id, number) if self._topic.unique_ids_ms else number

    def known(self, message: Outgoing) -> Place | None:
        """The place of the latest message stored with this id within `unique_ids_ms`, or None.

        Reads all buckets: after `unique_ids_ms` has changed, the bucket that ends last need not be the newest.
        """
        found = None
        name = hash16(message.message_id) if self._buckets else b""
        last_ms = self._tx.now_ms - self._topic.unique_ids_ms
        for bucket in self._buckets:
            raw = self._tx.kv.get("uid", bucket + name)
            if raw is not None and (read := _read(raw))[0] > last_ms:
                last_ms, found = read
        return found

    def remember(self, message: Outgoing, place: Place) -> None:
        """Stores the place of a message in the current bucket."""
        if self._topic.unique_ids_ms:
            width_s = -(-self._topic.unique_ids_ms // 2000)
            bucket = _bucket(self._topic, (self._tx.now_ms // 1000 // width_s + 1) * width_s)
            self._tx.kv.put("uid", bucket + hash16(message.message_id), _value(self._tx.now_ms, place))

    def move(self, message: Outgoing, place: Place, transaction_id: str = "") -> None:
        """Stores the place of a half message that was committed. The time of its id still counts from its Send.

        `transaction_id`: its own, "" = not known any more. An id whose time is over stays forgotten.
        """
        for bucket in self._buckets:
            key = bucket + hash16(message.message_id)
            raw = self._tx.kv.get("uid", key)
            stored_ms, known = (0, None) if raw is None else _read(raw)
            if known is not None and known.transaction_id and transaction_id in ("", known.transaction_id):
                self._tx.kv.put("uid", key, _value(stored_ms, place))


def _value(stored_ms: int, place: Place) -> bytes:
    kind = _DELAYED if place.recall_handle else _HALF if place.transaction_id else _VISIBLE
    text = place.recall_handle or place.transaction_id
    return VALUE.pack(stored_ms, place.queue, place.offset, kind) + text.encode()


def _read(raw: memoryview) -> tuple[int, Place]:
    """(stored ms, the place of the first message with this id)."""
    stored_ms, queue, offset, kind = VALUE.unpack_from(raw)
    text = bytes(raw[VALUE.size :]).decode()
    return stored_ms, Place(queue, offset, text if kind == _DELAYED else "", text if kind == _HALF else "", True)


def _bucket(topic: Topic, end_s: int) -> bytes:
    return U32.pack(topic.topic_id) + U32.pack(end_s)


def _buckets(tx: Tx, topic: Topic) -> list[bytes]:
    """The buckets that may hold valid ids: those that end after `unique_ids_ms` ago.

    Seeks from each bucket to the next without reading its ids.
    """
    found: list[bytes] = []
    cursor, prefix = tx.kv.cursor("uid"), U32.pack(topic.topic_id)
    end_s = max(0, tx.now_ms - topic.unique_ids_ms) // 1000
    while cursor.set_range(prefix + U32.pack(end_s + 1)):
        bucket = bytes(cursor.key()[:8])
        if not bucket.startswith(prefix):
            break
        found.append(bucket)
        end_s = U32.unpack_from(bucket, 4)[0]
    return found


def forget(tx: Tx, topic: Topic, message_id: str, name: str) -> None:
    """Releases the id of a message that never becomes visible; `name` is its recall handle or transaction id."""
    for bucket in _buckets(tx, topic) if topic.unique_ids_ms else ():
        key = bucket + hash16(message_id)
        raw = tx.kv.get("uid", key)
        if raw is not None and name in _read(raw)[1][2:4]:
            tx.kv.delete("uid", key)


def rename(tx: Tx, topic: Topic, message_id: str, name: str, new: str) -> None:
    """Notes the other recall handle of a delayed message that was moved."""
    for bucket in _buckets(tx, topic) if topic.unique_ids_ms else ():
        key = bucket + hash16(message_id)
        raw = tx.kv.get("uid", key)
        if raw is not None and name == (read := _read(raw))[1].recall_handle:
            tx.kv.put("uid", key, _value(read[0], read[1]._replace(recall_handle=new)))


class ForgettingIds:
    """Removes outdated ids of all topics. A job of housekeeping.py."""

    def __init__(self) -> None:
        self._round = TopicRound()

    def run(self, tx: Tx) -> bool:
        """Removes one piece; returns whether there may be more."""
        left = SWEEP_MAX
        for topic in self._round.piece(tx):
            prefix, stale = U32.pack(topic.topic_id), list[bytes]()
            for key in tx.kv.scan_keys("uid", prefix):
                if len(stale) == left or U32.unpack_from(key, 4)[0] * 1000 + topic.unique_ids_ms > tx.now_ms:
                    break
                stale.append(key)
            for key in stale:
                tx.kv.delete("uid", key)
            left -= len(stale)
            if not left:
                self._round.back_to(topic)
                break
        return self._round.more
