"""The state of a message for a group, as one word and one sentence. The first of these that applies:

leased, backoff            a CheckPoint of the group holds it
waiting, stopped           FIFO: it has a waiting entry in its message group
ready                      the group has not reached it, or pulls and has not committed it
retry                      an entry of the retry topic points to it
dead                       the dead letter topic has its dead letter
quarantined                its stored bytes are damaged
acked, dead                its last event: acked; dead or rejected
before start               the group began after it
dropped                    retention dropped it, and no event is known
filtered                   it does not match the group's filter
`expired`                  its ttl is over, and nothing else happened to it; also instead of ready, retry and waiting
pulled                     the group pulls, or did so once
skipped, acked             any other message that the group has passed: with known events; without
"""

import shlex
from datetime import UTC, datetime
from typing import NamedTuple

from popmq_server.contract.commands.inspection import LifeEvent
from popmq_server.embedded.rules.delivery import fifo, invalidated, subscription
from popmq_server.embedded.rules.inspect import fair_numbers
from popmq_server.embedded.rules.inspect.timeline import TracedDeadLetter, part_of
from popmq_server.embedded.rules.operate.holders import HeldMessage
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import BACKOFF
from popmq_server.embedded.store.keys import (
    CQ_KEY,
    FWAIT_KEY,
    RQ_KEY,
    RQ_VALUE,
    STAT_KEY,
    U16,
    U64,
)
from popmq_server.values import fields
from popmq_server.values.filters import filter as filters
from popmq_server.values.ids import GroupTopic
from popmq_server.values.message import dead_letter_topic
from popmq_server.values.records import Group, Subscription, Topic

#: Retry entries that one request reads; where a retry topic has more, the last event decides.
RETRIES_MAX = 20_000
#: The bytes of queue and offset in an entry of the retry topic.
_PLACE_AT = slice(14, 24)


class Subject(NamedTuple):
    """A message and the group whose view of it is requested.

    `data`: its bytes, perhaps from its dead letter; None when no record has them. `lost`: its own record is gone;
    `damaged`: its own record cannot be read.
    """

    group: Group
    topic: Topic
    queue: int
    offset: int
    data: bytes | None
    lost: bool
    damaged: bool
    stored_ms: int = 0  # when the message became visible; 0 = not known, or it was redriven

    @property
    def where(self) -> GroupTopic:
        return self.group.group_id, self.topic.topic_id

    @property
    def place(self) -> str:
        return f"offset {self.offset} of queue {self.queue}"


Standing = tuple[str, str]


def standing(
    tx: Tx,
    subject: Subject,
    held: list[HeldMessage],
    dead_letters: list[TracedDeadLetter],
    events: list[LifeEvent],
    looks: list[int],
) -> Standing:
    """The state and its sentence. `looks`: retry entries that may still be read, for all groups together."""
    last = next((event.what for event in reversed(events) if event.what != "sent"), "")
    return (
        _held(tx, subject, held)
        or _unless_over(tx, subject, _waiting(tx, subject))
        or _unless_over(tx, subject, _ahead(tx, subject))
        or _unless_over(tx, subject, _retry(tx, subject, last, looks))
        or _dead(tx, subject, dead_letters)
        or _passed(tx, subject, events, last)
    )


def _over_ms(tx: Tx, subject: Subject) -> int:
    """When the ttl of the message was over; 0: it is not, or nobody knows when it became visible."""
    topic = tx.state.topics.get(subject.topic.parent_id, subject.topic)
    if subject.data is None or not subject.stored_ms or not topic.expires:
        return 0
    ended_ms = fields.ended_ms(subject.data, subject.stored_ms)
    return ended_ms if ended_ms <= tx.now_ms else 0


def _unless_over(tx: Tx, subject: Subject, found: Standing | None) -> Standing | None:
    """The state of a message that would still be delivered if its ttl were not over."""
    if found is None or found[0] == "stopped" or not (ended_ms := _over_ms(tx, subject)):
        return found
    what = "makes it a dead letter" if subject.group.dead_letter_expired else "drops it"
    return "expired", f"its ttl was over at {time_of(ended_ms)}: the next Pop that comes to it {what}"


def _held(tx: Tx, subject: Subject, held: list[HeldMessage]) -> Standing | None:
    """leased or backoff, if a CheckPoint holds the message."""
    for one in held:
        part = part_of(tx, one)
        if part is None or (part.released | invalidated.of_checkpoint(tx.state, one.ck)) & one.bit:
            continue
        ck, until = one.ck, time_of(tx.state.due_ms_of(one.ck, part))
        if ck.kind == BACKOFF:
            why = f": {ck.reason}" if ck.reason else ""
            return "backoff", f"it was released with a delay that ends at {until}{why}"
        key = tx.state.owner_keys.get(ck.owner_id)
        who = f"owner {tx.state.owners[key].name!r}" if key else client_of(ck.client)
        tried = f"attempt {one.run.attempts} of {subject.group.max_attempts}"
        return "leased", f"{who} has it since {time_of(ck.popped_ms)} until {until}, {tried}"
    return None


def _waiting(tx: Tx, subject: Subject) -> Standing | None:
    """waiting or stopped, if the message has a waiting entry: FIFO topics and lite topics."""
    if not subject.topic.in_order or subject.data is None:
        return None
    message_group = fifo.message_group_hash(subject.data)
    value = tx.kv.get("fwait", FWAIT_KEY.pack(*subject.where, message_group, subject.offset))
    if value is None:
        return None
    entry = fifo.waiting_of(b"", value)
    if entry.stopped:
        name = fields.text(subject.data, fields.MESSAGE_GROUP) or fields.text(subject.data, fields.LITE_TOPIC)
        resume = f"popmq message-groups resume {subject.topic.name} {subject.group.name} {shlex.quote(name)}"
        return "stopped", f"it has stopped its message group: {entry.reason}; to resume it: {resume}"
    key = (*subject.where, message_group)
    front = fifo.front(tx, subject.where, message_group)
    if key in tx.state.locks:
        why = "other messages of its message group are leased or in backoff"
    elif front is not None and front.offset != subject.offset:
        why = f"earlier messages of its message group come first, from offset {front.offset} on"
    else:
        why = f"the next Pop gets it, attempt {entry.attempts + 1}"
    return "waiting", why if not entry.reason else f"{why} ({entry.reason})"


def _ahead(tx: Tx, subject: Subject) -> Standing | None:
    """ready, if the group has not reached the message."""
    state, topic_id = tx.state, subject.topic.topic_id
    at = state.poff.get((*subject.where, subject.queue), state.queue_min.get((topic_id, subject.queue), 0))
    passed = subject.offset < at or readers.has_passed(state, (*subject.where, subject.queue), subject.offset)
    if passed or subject.damaged or subject.lost:
        return None
    if _subscription(tx, subject).pulls:
        return "ready", f"the group pulls, and has committed up to offset {at} of queue {subject.queue}"
    if invalidated.hides(state, subject.where):
        return (
            "ready",
            "not popped yet: the broker is putting the message groups in order, and no Pop gets messages until then",
        )
    if state.in_flight.get((*subject.where, subject.queue), 0) >= subject.group.in_flight_max:
        full = f"{subject.group.in_flight_max} messages of its queue are leased, the group's limit"
        return "ready", f"not popped yet: {full}; ack some of them first"
    if turn := fair_numbers.standing(tx, subject.group, subject.topic, subject.data):
        return "ready", f"not popped yet: it {turn}"
    before = subject.offset - at
    many = f"{before} messages of queue {subject.queue} come"
    what = f"1 message of queue {subject.queue} comes" if before == 1 else many
    return "ready", f"not popped yet: {what} before it"


def _retry(tx: Tx, subject: Subject, last: str, looks: list[int]) -> Standing | None:
    """retry, if an entry of the retry topic points to the message; the last event decides when there are too many."""
    if not tx.state.stat[subject.where].retry or last in ("acked", "dead", "rejected"):
        return None
    place = U16.pack(subject.queue) + U64.pack(subject.offset)
    for key, value in tx.kv.scan("rq", STAT_KEY.pack(*subject.where)):
        if looks[0] <= 0:
            break
        looks[0] -= 1
        if value[_PLACE_AT] != place:
            continue
        rseq = RQ_KEY.unpack(key)[2]
        if not invalidated.has_entry(tx.state, subject.where, rseq, subject.queue, subject.offset):
            tried, reason = RQ_VALUE.unpack_from(value)[2], bytes(value[RQ_VALUE.size :]).decode()
            why = f" ({reason})" if reason else ""
            if turn := fair_numbers.standing(tx, subject.group, subject.topic, subject.data):
                return "retry", f"in the retry topic as entry {rseq}, attempt {tried + 1} comes: it {turn}{why}"
            return "retry", f"in the retry topic as entry {rseq}: a later Pop gets it, attempt {tried + 1}{why}"
    else:
        return None
    if last in ("expired", "released", "redriven", "sent back"):
        return "retry", "in the retry topic, after many others: a later Pop gets it"
    return None


def _dead(tx: Tx, subject: Subject, dead_letters: list[TracedDeadLetter]) -> Standing | None:
    """dead, if the message has a dead letter that was not redriven."""
    name = dead_letter_topic(subject.group.name)
    for dead_letter in dead_letters:
        if not dead_letter.gone_ms:
            origin = dead_letter.origin
            why = f": {origin.reason}" if origin.reason else ""
            offset = dead_letter.spot.offset
            redrive = f"popmq dlq redrive {subject.group.name} --offset {offset}"
            tries = "1 attempt" if origin.attempts == 1 else f"{origin.attempts} attempts"
            at = f"at offset {offset} of {name!r} since {time_of(origin.dead_ms)}"
            return "dead", f"{at}, after {tries}{why}; to deliver it again: {redrive}"
    return None


def _passed(tx: Tx, subject: Subject, events: list[LifeEvent], last: str) -> Standing:
    """The state of a message that the group has passed and does not hold."""
    if tx.kv.get("quar", CQ_KEY.pack(subject.topic.topic_id, subject.queue, subject.offset)) or subject.damaged:
        return "quarantined", f"the stored bytes of {subject.place} are damaged: kept, reported, not delivered"
    if last == "acked":
        when = f" at {time_of(events[-1].time_ms)}" if events[-1].time_ms else ""
        return "acked", f"finished by {client_of(events[-1].client)}{when}: this group does not get it again"
    if last == "discarded":
        return "dead", f"its dead letter was discarded at {time_of(events[-1].time_ms)}: it is not delivered again"
    if last in ("dead", "rejected"):
        return "dead", f"it went to {dead_letter_topic(subject.group.name)!r}, and is no longer there"
    begun = subscription.begun_at(tx, subject.where, subject.queue)
    if subject.offset < begun:
        return "before start", f"the group began at offset {begun} of queue {subject.queue}, or was put there"
    return _gone(tx, subject, last)


def _gone(tx: Tx, subject: Subject, last: str) -> Standing:
    """The states that follow from settings and missing records, not from an event."""
    fixed = _subscription(tx, subject)
    if subject.lost and not last:
        return "dropped", "retention dropped it, and its history with it"
    wanted = filters.make(fixed.filter_kind, fixed.filter_text)
    if subject.data is not None and not wanted.matches(subject.data):
        return "filtered", f"it does not match the group's filter, {fixed.filter_kind} {fixed.filter_text!r}"
    if not last and (ended_ms := _over_ms(tx, subject)):
        return "expired", f"its ttl was over at {time_of(ended_ms)}, before a consumer of the group had it"
    if fixed.pulls or fixed.pulled:
        return "pulled", f"the group pulled it, and committed an offset after {subject.place}"
    if last:
        return "skipped", "the group skipped it: its offsets were reset, or its topic was purged"
    return "acked", "finished long ago: its history is gone"


def _subscription(tx: Tx, subject: Subject) -> Subscription:
    return tx.state.subscriptions.get(subject.where, Subscription())


def client_of(name: str) -> str:
    return f"client {name!r}" if name else "a client without a name"


def time_of(ms: int) -> str:
    """An ISO 8601 time in UTC, to the millisecond."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
