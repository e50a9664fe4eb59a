"""Check back: asks producers how their half messages ended, and gives up those without an answer.

    writer                                    event loop                               producer
    a half message is due, and                producers.py: a live stream
    a producer listens ──── Check ──────────▶ of the topic, in turn ────────────────▶ TransactionCheck
    next check in 30 s                                │ written to the stream
    CountChecks: one check more  ◀────────────────────┘
    EndTransaction  ◀──────────────────────────────────────────────────────────────── COMMIT, ROLLBACK

A check counts only after it was written to a live stream. If no stream takes it, or the stream
breaks, the half message is checked again in 30 s. While no producer listens for a topic, its half messages are not
checked at all: `state.listened` holds the topics whose producers can take more checks, and the event loop updates it
with Listen commands. A slow producer limits its own checks in this way.

After 15 counted checks and 30 s more, the broker gives a half message up: one transaction appends a record with its
origin, like that of a dead letter, to TRANS_CHECK_MAX_TIME_TOPIC and removes the half message. A redrive commits it.
The broker also gives up half messages older than 72 h after any number of checks: without this, those of
producers that never return would stay forever. `half` is in order of arrival, so a search reads the old ones and one
more.

See docs/decisions/0029-transaction-checks.md.
"""

from collections.abc import Iterator

from popmq_server.contract.commands import Check
from popmq_server.embedded.operations import CountChecks, Listen
from popmq_server.embedded.rules.delivery.deadletter import origin_bytes
from popmq_server.embedded.rules.sending import transaction
from popmq_server.embedded.rules.sending.transaction import (
    CHECK_EVERY_MS,
    CHECKS_MAX,
    GIVEN_UP,
    Half,
)
from popmq_server.embedded.rules.topics import registry
from popmq_server.embedded.rules.topics.registry import ensure_give_up_topic
from popmq_server.embedded.rules.topics.topic import enqueue
from popmq_server.embedded.state.jobs import RETRY_MS, Job, Timed
from popmq_server.embedded.state.space import GROW, messages_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import invalid, topic_not_found
from popmq_server.values.handles import read_transaction, transaction_text

#: The most that one transaction does: checks, bytes of checks, and give-ups.
CHECKS_AT_ONCE = 64
CHECK_BYTES_MAX = 4 << 20
GIVE_UPS_AT_ONCE = 100
#: Topics that one piece of the search for old half messages looks into.
TOPICS_AT_ONCE = 200
#: The reference discards a half message with its log file, after 72 h.
HALF_KEEP_MS = 72 * 3_600_000
#: Interval between two searches for half messages that are too old.
LOOK_EVERY_MS = 60_000


class CheckingBack(Job):
    """Schedules checks. One step selects half messages to check and gives up on those that are used up or too old."""

    name = "checks of half messages"

    def __init__(self) -> None:
        super().__init__()
        #: When the search for old half messages continues, and at which topic.
        self._look_ms = self._look_at = 0
        #: The next half messages are given up no earlier than this: those that are due found no pages.
        self._give_up_ms = 0

    def next_ms(self, tx: Tx) -> int | None:
        """When the next check, or the next search for old half messages, is due; None without half messages."""
        if not tx.state.unseen.get("half"):
            return None
        give_ups = (max(due_ms, self._give_up_ms) for due_ms in _give_up_times(tx))
        return min([self._look_ms, *(due_ms for due_ms, _ in _answerable(tx)), *give_ups])

    def step(self, tx: Tx, work: Timed) -> None:
        if not tx.room.has(GROW):  # an answer could not be stored either
            self.postpone(tx.now_ms + RETRY_MS)
            return
        tx.state.undo.save(self, "_look_ms", "_look_at", "_give_up_ms")
        if self._give_up_ms <= tx.now_ms:
            self._give_up(tx, work)
        if self._look_ms <= tx.now_ms and self.alone is None:
            old, self._look_at = self._give_up_old(tx, self._look_at, self.at_most(GIVE_UPS_AT_ONCE))
            work.given_up.extend(old)
            self._look_ms = tx.now_ms if old or self._look_at else tx.now_ms + LOOK_EVERY_MS
        work.checks.extend(_due_checks(tx))
        if tx.room.short and not (work.given_up or work.checks):
            self.postpone(tx.now_ms + RETRY_MS)

    def _give_up(self, tx: Tx, work: Timed) -> None:
        """Gives up half messages without checks left."""
        count, reason = self.at_most(GIVE_UPS_AT_ONCE), f"no producer ended the transaction in {CHECKS_MAX} checks"
        halves = self._ready(tx, transaction.due(tx, GIVEN_UP, count + len(self.postponed)), count)
        work.given_up.extend(sentence for half in halves if (sentence := _give_up_half(tx, half, reason)))
        self._give_up_ms = tx.now_ms + RETRY_MS if self.postponed and not halves else 0

    def _give_up_old(self, tx: Tx, start: int, count: int) -> tuple[list[str], int]:
        """Gives up half messages older than HALF_KEEP_MS, the oldest of each topic first, from topic id `start` on.

        Returns a log line for each, and the topic id to continue at; 0 = all topics were searched.
        """
        sentences: list[str] = []
        topics = transaction.topics_with_any(tx, start, TOPICS_AT_ONCE)
        for topic_id in topics:
            left = count - len(sentences)
            halves = transaction.older(tx, topic_id, tx.now_ms - HALF_KEEP_MS, left + len(self.postponed))
            fitting = self._ready(tx, halves, left)
            for half in fitting:
                after = f"in {HALF_KEEP_MS // 3_600_000} h, after {half.checks} checks"
                sentences += filter(None, [_give_up_half(tx, half, f"no producer ended the transaction {after}")])
            if fitting and (len(fitting) < len(halves) or len(sentences) == count):
                return sentences, topic_id
        return sentences, topics[-1] + 1 if len(topics) == TOPICS_AT_ONCE else 0

    def _ready(self, tx: Tx, halves: list[Half], count: int) -> list[Half]:
        """The first `count` that are not postponed for lack of pages, as far as they fit."""
        ready = _that_fit(tx, [half for half in halves if not self.waits(tx, half.transaction)][:count])
        if ready and self.at_most(GIVE_UPS_AT_ONCE) == 1:
            self.alone = ready[0].transaction
        return ready


def _answerable(tx: Tx) -> Iterator[tuple[int, int]]:
    """(due time of the first check, topic id) of the topics with half messages for which a live producer can answer.

    Each commit asks: it goes over the topics of live producers, not over all those with half messages.
    """
    for name in tx.state.listened:
        topic_id = tx.state.ids.get(("t", name), 0)
        if topic_id and (due_ms := tx.state.checks.get(topic_id)) is not None:
            yield due_ms, topic_id


def _give_up_times(tx: Tx) -> list[int]:
    """When the first half message without checks left is given up; empty if there is none."""
    due_ms = tx.state.checks.get(GIVEN_UP)
    return [] if due_ms is None else [due_ms]


def _due_checks(tx: Tx) -> list[Check]:
    """Returns due checks, the topic with the earliest first, and schedules the next check of each in 30 s."""
    checks: list[Check] = []
    size = 0
    for _, lane in sorted(one for one in _answerable(tx) if one[0] <= tx.now_ms):
        for half in transaction.due(tx, lane, CHECKS_AT_ONCE - len(checks)):
            message = transaction.message_of(tx, half)
            if message is None:
                transaction.set_aside(tx, half)
                continue
            size += len(message.data)
            if checks and size > CHECK_BYTES_MAX:
                return checks
            transaction.change(tx, half, half.checks, tx.now_ms + CHECK_EVERY_MS)
            checks.append(
                Check(transaction_text(half.transaction), tx.state.topics[lane].name, half.checks + 1, message.data)
            )
    return checks


def _that_fit(tx: Tx, halves: list[Half]) -> list[Half]:
    """The first half messages that fit the byte limit of one piece and the free room. The limit always allows one."""
    size = 0
    for index, half in enumerate(halves):
        message = transaction.message_of(tx, half)
        size += len(message.data) if message else 0
        if (index and size > CHECK_BYTES_MAX) or not tx.room.has(GROW, messages_bytes([2 * size])):
            return halves[:index]
    return halves


def _give_up_half(tx: Tx, half: Half, reason: str) -> str:
    """Moves one half message to the give-up topic, with its origin; removes that of a deleted topic."""
    topic, message = tx.state.topics.get(half.topic_id), transaction.message_of(tx, half)
    if topic is None:
        transaction.remove(tx, half)
        return ""
    if message is None:
        transaction.set_aside(tx, half)
        return ""
    origin = origin_bytes(topic.name, 0, 0, half.checks, half.stored_ms, "", reason, tx.now_ms)
    enqueue(tx, ensure_give_up_topic(tx), 0, (message._replace(data=message.data + origin, extra=None),))
    transaction.remove(tx, half)
    return f"topic {topic.name}: message {message.message_id!r} was given up: {reason}"


def count(tx: Tx, command: CountChecks) -> None:
    """Counts checks that were written to a live stream; skips those already counted or of ended transactions."""
    for text, number in command.checks:
        txn = read_transaction(text)
        half = transaction.find_half(tx, txn.topic_id, txn.txn_id) if txn else None
        if txn and half and half.nonce == txn.nonce and half.checks == number - 1 < CHECKS_MAX:
            transaction.change(tx, half, number, half.next_ms)


def listen(tx: Tx, command: Listen) -> None:
    """Sets the topics that live producers can answer for; refuses a producer of a topic that takes no half messages.

    Not stored: it describes the live producers, which remains true if the commit fails.
    """
    for index, name in enumerate(command.joining):
        field = f"hello.transaction_topics[{index}]"
        topic = registry.topic(tx, name)
        if topic is None:
            raise topic_not_found(name, field)
        if topic.type == "NORMAL" or topic.is_own:
            raise invalid(
                f"topic {name!r} has type NORMAL: it does not accept half messages",
                field=field,
                action="leave it out, or create a topic of another type, e.g. TRANSACTION",
            )
    tx.state.listened = command.topics
