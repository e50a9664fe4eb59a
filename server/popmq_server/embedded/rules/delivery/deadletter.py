"""Dead letters: new records in `%DLQ%group`, which pin no chunk and outlive the original message.

The stored bytes are the message as received plus one more field, `dead_letter`: in protobuf a message followed by a
field is the message with that field set, so nothing is decoded or encoded again. The core uses no generated code;
this module encodes these few bytes itself, and a test reads them with the generated class.

    dead_letter  member of a CheckPoint ─▶ dead letter          (lease.py, revive.py, message_groups.py, send_back.py)
                 message whose ttl is over ─▶ dead letter       (pick.py)
    redrive      dead letter ─▶ retry topic of its origin       (redrive.py); the dead letter stays, marked in `gone`

Readers of a dead letter topic skip redriven dead letters, and its numbers leave them out: TopicStat.redriven counts
the marks. When retention drops a chunk, its marks are no longer counted. They stay until every group is past the chunk,
so that a group which is moved over it does not count redriven dead letters as lost (floors.py).
"""

from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.contract.commands import Position
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import lease_history
from popmq_server.embedded.rules.results import stored
from popmq_server.embedded.rules.topics import quarantine, readers
from popmq_server.embedded.rules.topics.log import Log, located
from popmq_server.embedded.rules.topics.registry import ensure_dead_letter_topic
from popmq_server.embedded.rules.topics.topic import enqueue
from popmq_server.embedded.state import marks, topic_counts
from popmq_server.embedded.state.space import GROW, messages_bytes
from popmq_server.embedded.state.tx import Scratch, Tx
from popmq_server.embedded.store.checkpoint import FIRST_POP, RETRY, CheckPoint, Lease, Run
from popmq_server.embedded.store.keys import CQ_KEY, QUEUE_KEY, U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.errors import Later, Refused
from popmq_server.values import fields
from popmq_server.values.ids import GroupTopic, TopicId
from popmq_server.values.message import REPLIES, REPLY_TO, varint
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import TopicStat

#: Limits of one piece that moves messages to dead letter topics: their bytes (one message is always allowed) and
#: their number (some 25 µs each).
DEAD_LETTER_BYTES_MAX = 4 << 20
DEAD_LETTERS_MAX = 250
#: The reason of a dead letter whose ttl was over.
EXPIRED_REASON = "expired"
#: Size of a dead letter's origin, at most: names, and a reason of 4 KiB.
ORIGIN_BYTES = 5 << 10
#: A message with these bytes may be a request.
_ASKS = REPLY_TO.encode()
#: Text fields of popmq.v1.DeadLetter.
_ORIGIN_TEXTS = (1, 6, 7)


class Origin(NamedTuple):
    """The origin of a dead letter and its reason: popmq.v1.DeadLetter."""

    topic: str = ""
    queue: int = 0
    offset: int = 0
    attempts: int = 0
    first_pop_ms: int = 0
    last_client: str = ""
    reason: str = ""
    dead_ms: int = 0


def dead_letter(
    tx: Tx, ck: CheckPoint, bits: int, reason: str, lease: Lease | None = None, how: int = lease_history.DEAD
) -> None:
    """Moves members, already out of their lease, to the dead letter topic of their group.

    Writes a history row for each, with the reason that the dead letter carries too. In a group that keeps results it is
    a failed result. `lease`: the lease that they left;
    without it the rows have the current time as its deadline. `how`: DEAD or REJECTED.
    """
    group = tx.state.groups[ck.group_id]
    topic = tx.state.topics[ck.topic_id]
    log = Log(tx.kv)
    found: list[Outgoing] = []
    failures: list[Outgoing] = []
    for _, run, offset, position, size in located(tx.kv, ck, bits):
        read = log.fetch(ck.topic_id, position, size)
        if read is None:
            quarantine.set_aside(tx, ck.group_id, ck.topic_id, run.queue, offset, position, size)
            continue
        first_ms = run.past & FIRST_POP or ck.popped_ms
        origin = origin_bytes(topic.name, run.queue, offset, run.attempts, first_ms, ck.client, reason, tx.now_ms)
        message = fields.outgoing(read[1])
        found.append(Outgoing(read[1] + origin, message.tag_hash, message.hashes, message.message_id))
        if group.results_keep_ms:
            failures.append(stored.failed(message.message_id, origin))
        if _ASKS in read[1]:
            _note_request(tx, read[1], group.name, run.attempts, reason)
    if found:
        enqueue(tx, ensure_dead_letter_topic(tx, group), 0, tuple(found))
        readers.count(tx, (ck.group_id, ck.topic_id), dead=len(found))
    if failures:
        stored.store_failed(tx, group, tuple(failures))
    lease_history.write_members(tx, ck, bits, lease or Lease(tx.now_ms, 0), how, reason)


def dead_letter_expired(tx: Tx, where: GroupTopic, runs: list[Run]) -> None:
    """Moves messages whose ttl is over, each a run of its own, to the dead letter topic of their group."""
    ck = CheckPoint(
        ck_id=tx.next("ck_id"),
        group_id=where[0],
        topic_id=where[1],
        kind=RETRY,
        nonce=0,
        popped_ms=0,
        runs=tuple(runs),
        members=len(runs),
        chunks=(),
    )
    dead_letter(tx, ck, ck.all_bits, EXPIRED_REASON, lease_history.NO_LEASE)


class FailedRequest(NamedTuple):
    """A dead letter whose sender waits for a reply (lite/failed_requests.py)."""

    lite_topic: str
    correlation_id: str
    group: str
    attempts: int
    reason: str


def _note_request(tx: Tx, data: bytes, group: str, attempts: int, reason: str) -> None:
    """Notes a dead letter that is a request whose reply goes through the topic of replies."""
    properties = fields.properties(data)
    topic, _, lite_topic = properties.get(REPLY_TO, "").partition("/")
    if topic == REPLIES and lite_topic:
        correlation_id = properties.get("popmq_correlation_id", "")
        FAILED_REQUESTS.of(tx).append(FailedRequest(lite_topic, correlation_id, group, attempts, reason))


def _no_requests(_: Tx) -> list[FailedRequest]:
    return []


#: Those of a transaction.
FAILED_REQUESTS = Scratch(_no_requests)


def failed_requests(tx: Tx) -> list[FailedRequest]:
    """Those of this transaction, each handed out once."""
    found = FAILED_REQUESTS.of(tx)[:]
    FAILED_REQUESTS.of(tx).clear()
    return found


class DeadLetterBudget:
    """The dead letters that one piece may write: bounded in number, in bytes and by the room of the store.

    A dead letter has all bytes of its message, so a bound of members alone would allow gigabytes.
    """

    def __init__(self, tx: Tx, bytes_max: int = DEAD_LETTER_BYTES_MAX) -> None:
        self._tx = tx
        self._bytes_max = bytes_max
        self._taken = self._letters = 0
        #: `full`: a dead letter was left for a later piece. `no_room`: one found no room in the store.
        self.full = self.no_room = False

    @property
    def untouched(self) -> bool:
        """Whether no dead letter was counted yet."""
        return not self._letters

    def fitting(self, ck: CheckPoint, bits: int, ahead: int = 0) -> int:
        """The first members of `bits` whose dead letters may be written now; they count as written.

        `ahead`: bytes that are written before them.
        """
        fits = 0
        for member, _, _, _, size in located(self._tx.kv, ck, bits):
            if not self.fits(size, ahead):
                break
            fits |= 1 << member
        return fits

    def fits(self, size: int, ahead: int = 0) -> bool:
        """Whether a dead letter of `size` bytes may be written now; if so, it counts as written."""
        if self._letters == DEAD_LETTERS_MAX or (self._taken and self._taken + size > self._bytes_max):
            self.full = True
            return False
        if not self._tx.room.has(GROW, ahead + messages_bytes([self._taken + size + ORIGIN_BYTES])):
            self.no_room = True
            return False
        self._taken += size
        self._letters += 1
        return True

    def refusal(self) -> Refused:
        """The error for a dead letter that was not written."""
        return self._tx.room.refusal() if self.no_room else Later()


def budget(tx: Tx) -> DeadLetterBudget:
    """The budget that all commands of a transaction share."""
    return _SHARED.of(tx)


_SHARED = Scratch(DeadLetterBudget)


def origin_bytes(
    topic: str, queue: int, offset: int, attempts: int, first_pop_ms: int, client: str, reason: str, now_ms: int
) -> bytes:
    """popmq.v1.Message.dead_letter, encoded."""
    body = b"".join(
        (
            _text(1, topic),
            _number(2, queue),
            _number(3, offset),
            _number(4, attempts),
            _number(5, first_pop_ms),
            _text(6, client),
            _text(7, reason),
            _number(8, now_ms),
        )
    )
    return varint(fields.DEAD_LETTER << 3 | 2) + varint(len(body)) + body


def opened(data: bytes) -> tuple[bytes, Origin] | None:
    """The original message of a dead letter, and its origin; None if it is not a dead letter.

    Removes only the last `dead_letter` field: a message popped from a dead letter topic may become one again.
    """
    at = None
    for field, length, start, end in fields.fields(data):
        if field == fields.DEAD_LETTER:
            at = start, end - length, end
    if at is None:
        return None
    found: dict[int, str | int] = {}
    raw = data[at[1] : at[2]]
    for field, value, _, end in fields.fields(raw):
        found[field] = raw[end - value : end].decode() if field in _ORIGIN_TEXTS else value
    origin = Origin(*(found.get(number, default) for number, default in enumerate(Origin(), 1)))  # type: ignore[arg-type]  # numbers and texts by their place
    return data[: at[0]] + data[at[2] :], origin


def has_gone(tx: Tx, topic_id: int) -> bool:
    """Whether a topic may have marks of redriven dead letters. Most topics have none and need no further check."""
    return topic_id in tx.state.lagging or tx.state.topic_stat.get(topic_id, TopicStat()).redriven > 0


def is_gone(kv: Transaction, topic_id: int, queue: int, offset: int) -> bool:
    """Whether a dead letter was redriven."""
    return kv.get("gone", CQ_KEY.pack(topic_id, queue, offset)) is not None


def gone_times(kv: Transaction, topic_id: int, queue: int, first: int, stop: int) -> Iterator[int]:
    """The times at which the dead letters from `first` up to but not including `stop` were redriven."""
    for key, value in kv.scan("gone", QUEUE_KEY.pack(topic_id, queue), CQ_KEY.pack(topic_id, queue, first)):
        if CQ_KEY.unpack(key)[2] >= stop:
            return
        yield int(U64.unpack(value)[0])


def gone_ahead(tx: Tx, where: GroupTopic, upto: Position | None = None) -> int:
    """The number of redriven dead letters that a group has not passed yet, below `upto`."""
    group_id, topic_id = where
    if not has_gone(tx, topic_id):
        return 0
    found = 0
    for queue in range(tx.state.topics[topic_id].queues):
        stop = tx.state.queue_max.get((topic_id, queue), 0)
        if upto is not None:
            stop = min(stop, upto.queues.get(queue, 0))
        first = tx.state.poff.get((group_id, topic_id, queue), 0)
        found += sum(1 for _ in marks.redriven(tx.kv, topic_id, queue, first, stop))
    return found


def mark_gone(tx: Tx, topic_id: int, queue: int, offsets: list[int]) -> None:
    """Marks dead letters as redriven: readers skip them from now on."""
    end = tx.state.queue_max.get((TopicId(topic_id), queue), 0)
    for offset in offsets:
        if offset >= end:
            broken("redriven_in_its_queue", topic=topic_id, queue=queue, offset=offset, end=end)
        if is_gone(tx.kv, topic_id, queue, offset):
            broken("redriven_once", topic=topic_id, queue=queue, offset=offset)
        tx.kv.put("gone", CQ_KEY.pack(topic_id, queue, offset), U64.pack(tx.now_ms))
    topic_counts.add(tx, topic_id, redriven=len(offsets))


def forget_gone(tx: Tx, topic_id: int, queue: int, stop: int) -> None:
    """Removes the marks of dead letters before `stop`, which retention dropped and no longer counts (chunks.drop)."""
    for offset in list(marks.redriven(tx.kv, topic_id, queue, 0, stop)):
        tx.kv.delete("gone", CQ_KEY.pack(topic_id, queue, offset))


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _text(field: int, value: str) -> bytes:
    raw = value.encode()
    return varint(field << 3 | 2) + varint(len(raw)) + raw
