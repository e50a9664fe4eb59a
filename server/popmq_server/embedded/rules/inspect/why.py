"""`popmq why`: the state and history of each message that a trace found under a message id (trace.py).

    a message       ─▶ for each group of its topic: its events (timeline.py) and state (message_status.py)
    a dead letter   ─▶ part of the history of its message; reported alone when the message is gone
    delayed, half   ─▶ its delivery time, or its next check back
    given up        ─▶ its place in the give-up topic, from which a redrive can commit it

The CheckPoints that hold a message are searched in pieces, with other commands in between (holders.py). The last piece
reads everything in one transaction, so the answer is consistent. A dead letter is also a message of its own if a group
reads its dead letter topic or the request names that topic, unless it was redriven.
"""

from typing import NamedTuple

from popmq_server.contract.commands.inspection import GroupLife, MessageLife
from popmq_server.embedded.operations import HolderSearch, MessagePlace, Spotted, WhyPiece
from popmq_server.embedded.rules.delivery import deadletter, lease_history
from popmq_server.embedded.rules.inspect.message_status import RETRIES_MAX, Subject, standing
from popmq_server.embedded.rules.inspect.timeline import TracedDeadLetter, events_of
from popmq_server.embedded.rules.inspect.trace import DELAYED, LOG
from popmq_server.embedded.rules.operate import holders
from popmq_server.embedded.rules.operate.holders import HeldMessage
from popmq_server.embedded.rules.sending import delay, transaction
from popmq_server.embedded.rules.topics import index, readers, registry
from popmq_server.embedded.rules.topics.index import Spot
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state.checkpoints import DONE
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    CQ_KEY,
    HALF_KEY,
    SCHED_KEY,
    STAT_KEY,
    U32,
    U64,
)
from popmq_server.errors import Refused
from popmq_server.values import fields
from popmq_server.values.ids import TopicId
from popmq_server.values.message import DEAD_LETTER_PREFIX, GIVE_UP_TOPIC
from popmq_server.values.outgoing import packed_message_id
from popmq_server.values.records import Group, Topic

#: Stored messages reported for one id. Ids should be unique: more are an error of the producers.
LIVES_MAX = 100
#: Bytes of messages that one piece reads for the ids in them; later messages are not reported. One is always read.
READ_BYTES_MAX = 32 << 20

#: By place, the CheckPoints that hold the message there.
Holding = dict[MessagePlace, list[HeldMessage]]


class Stored(NamedTuple):
    """A message in the log. Not readable: `lost` (its chunk was dropped, it may still be a retry) or damaged.

    It does not keep its bytes; callers read them again: one id may have a thousand messages of 4 MiB each.
    """

    topic: Topic
    spot: Spot
    readable: bool
    lost: bool

    @property
    def place(self) -> tuple[str, int, int]:
        return self.topic.name, self.spot.queue, self.spot.offset


class FoundInLog(NamedTuple):
    """The messages that the trace has found in the log, and the dead letters among them."""

    log: list[Stored]
    dead_letters: list[TracedDeadLetter]


def lives(tx: Tx, command: WhyPiece) -> list[MessageLife] | HolderSearch:
    """All messages of the id, newest first, or the HolderSearch of the unfinished search for their CheckPoints.

    Raises Refused MESSAGE_NOT_FOUND when there is no message.
    """
    seen, walk = None, command.walk
    if walk is None:
        seen = _seen(tx, command)
        walk = _walk(tx, command, seen)
    if not holders.is_done(walk):
        walk = holders.step(tx, walk)
    if not holders.is_done(walk):
        return walk
    held: Holding = {}
    for place, one in holders.held(tx, walk):
        held.setdefault(place, []).append(one)
    return _lives(tx, command, seen or _seen(tx, command), held)


def _seen(tx: Tx, command: WhyPiece) -> FoundInLog:
    log, left = list[Stored](), READ_BYTES_MAX
    for spotted in command.found:
        if spotted.stage == LOG and left > 0:
            spot = index.spot(tx.kv, spotted.topic_id, U64.unpack(spotted.key)[0])
            left -= spot.size if spot is not None else 0
            if spot is not None and (found := _stored(tx, command, spotted.topic_id, spot)) is not None:
                log.append(found)
    return FoundInLog(log, [dead_letter for found in log if (dead_letter := _dead_letter(tx, found)) is not None])


def _walk(tx: Tx, command: WhyPiece, seen: FoundInLog) -> HolderSearch:
    """The search for the CheckPoints that hold these messages; already done if none can.

    It has all places, since a CheckPoint for any of them may be created before the last piece.
    """
    places = {(found.topic.topic_id, found.spot.queue, found.spot.offset) for found in seen.log}
    for dead_letter in seen.dead_letters:
        if (topic := registry.topic(tx, dead_letter.origin.topic)) is not None:
            places.add((topic.topic_id, *_place(dead_letter)[1:]))
    group = readers.group(tx, command.group) if command.group else None
    if not any(_may_hold(tx, group, topic_id) for topic_id in {place[0] for place in places}):
        return HolderSearch(frozenset(), at=DONE)
    return HolderSearch(frozenset(places), group.group_id if group else 0)


def _may_hold(tx: Tx, group: Group | None, topic_id: int) -> bool:
    """Whether a group has leases in a topic; a sealed token keeps CheckPoints whose messages are all done."""
    groups = (group.group_id,) if group else tx.state.topic_groups.get(topic_id, ())
    pairs = [(group_id, TopicId(topic_id)) for group_id in groups]
    return any(
        any(tx.state.held.get(where, ())) or next(tx.kv.scan("tok", STAT_KEY.pack(*where)), None) for where in pairs
    )


def _lives(tx: Tx, command: WhyPiece, seen: FoundInLog, held: Holding) -> list[MessageLife]:
    log, dead_letters = seen
    own = [found for found in log[:LIVES_MAX] if _has_life(tx, command, found)]
    looks = [RETRIES_MAX]
    lives = [_life(tx, command, found, dead_letters, held, looks) for found in own]
    lives += _lives_of_dead_letters(
        tx,
        command,
        [dead_letter for dead_letter in dead_letters if not any(_is_of(dead_letter, found) for found in own)],
        held,
    )
    lives += [_given_up(found) for found in log if found.topic.name == GIVE_UP_TOPIC and not _gone_ms(tx, found)]
    waiting = (spotted for spotted in command.found if spotted.stage != LOG)
    lives += [life for spotted in waiting if (life := _not_visible(tx, command, spotted)) is not None]
    if not lives:
        raise Refused(
            "MESSAGE_NOT_FOUND",
            f"no message {command.message_id!r} is stored{f' in topic {command.topic!r}' if command.topic else ''}",
            field="message_id",
            action="compare the id with the answer of Send; retention may have dropped it, or its topic was deleted",
        )
    return sorted(lives, key=lambda life: -life.stored_ms)


def _stored(tx: Tx, command: WhyPiece, topic_id: int, spot: Spot) -> Stored | None:
    """The message at a position of the log, if it has the id; of an unreadable one only the hash is known to match."""
    topic = tx.state.topics.get(TopicId(topic_id))
    if topic is None:
        return None
    log = Log(tx.kv)
    read = log.fetch(topic.topic_id, spot.position, spot.size)
    if read is None:
        return Stored(topic, spot, False, log.chunk_of(spot.position) < 0)
    if fields.text(read[1], fields.MESSAGE_ID) != command.message_id:
        return None
    return Stored(topic, spot, True, False)


def _read(tx: Tx, topic_id: int, spot: Spot) -> bytes | None:
    """The bytes of a message in the log."""
    read = Log(tx.kv).fetch(topic_id, spot.position, spot.size)
    return None if read is None else read[1]


def _has_life(tx: Tx, command: WhyPiece, stored: Stored) -> bool:
    """Whether a stored message is reported as a message of its own."""
    if stored.topic.name == GIVE_UP_TOPIC:
        return False
    if command.topic not in ("", stored.topic.name):
        return False
    if not stored.topic.is_dead_letter:
        return True
    read = command.topic == stored.topic.name or bool(tx.state.topic_groups.get(stored.topic.topic_id))
    return read and not _gone_ms(tx, stored)


# ── Dead letters ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _dead_letter(tx: Tx, stored: Stored) -> TracedDeadLetter | None:
    """A stored message as a dead letter, with its origin; None if it is not a dead letter."""
    data = _read(tx, stored.topic.topic_id, stored.spot) if stored.topic.is_dead_letter and stored.readable else None
    opened = deadletter.opened(data) if data is not None else None
    if opened is None:
        return None
    return TracedDeadLetter(stored.topic.topic_id, stored.spot, opened[1], _gone_ms(tx, stored))


def _gone_ms(tx: Tx, stored: Stored) -> int:
    """When a dead letter was redriven; 0 = it was not."""
    raw = tx.kv.get("gone", CQ_KEY.pack(stored.topic.topic_id, stored.spot.queue, stored.spot.offset))
    return 0 if raw is None else int(U64.unpack(raw)[0])


def _place(dead_letter: TracedDeadLetter) -> tuple[str, int, int]:
    """The place of the original message of a dead letter."""
    return dead_letter.origin.topic, dead_letter.origin.queue, dead_letter.origin.offset


def _is_of(dead_letter: TracedDeadLetter, stored: Stored) -> bool:
    """Whether a dead letter is of this message, not of one at the same place before the topic was created again."""
    return _place(dead_letter) == stored.place and dead_letter.origin.dead_ms >= stored.topic.created_ms


def _group_of(tx: Tx, dead_letter: TracedDeadLetter) -> Group | None:
    return readers.group(tx, tx.state.topics[dead_letter.topic_id].name.removeprefix(DEAD_LETTER_PREFIX))


def _lives_of_dead_letters(
    tx: Tx, command: WhyPiece, dead_letters: list[TracedDeadLetter], held: Holding
) -> list[MessageLife]:
    """Messages that are gone themselves and known only from dead letters, one for each original place."""
    by_place: dict[tuple[str, int, int], list[TracedDeadLetter]] = {}
    for dead_letter in dead_letters:
        if command.topic in ("", dead_letter.origin.topic):
            by_place.setdefault(_place(dead_letter), []).append(dead_letter)
    lives = []
    for (name, queue, offset), alike in by_place.items():
        topic = registry.topic(tx, name)
        if topic is not None and topic.created_ms > min(dead_letter.origin.dead_ms for dead_letter in alike):
            topic = None
        by_group: dict[int, list[TracedDeadLetter]] = {}
        for dead_letter in alike:
            if (group := _group_of(tx, dead_letter)) is not None:
                by_group.setdefault(group.group_id, []).append(dead_letter)
        groups = [
            _group_of_dead_letters(tx, tx.state.groups[group_id], topic, queue, offset, own, held)
            for group_id, own in by_group.items()
        ]
        lives.append(
            MessageLife(topic=name, queue=queue, offset=offset, stored_ms=0, place="stored", due_ms=0, groups=groups)
        )
    return lives


def _group_of_dead_letters(
    tx: Tx,
    group: Group,
    topic: Topic | None,
    queue: int,
    offset: int,
    dead_letters: list[TracedDeadLetter],
    holding: Holding,
) -> GroupLife:
    """The state for a group as far as dead letters tell it; the message is gone, and perhaps its topic."""
    if topic is None or (group.group_id, topic.topic_id) not in tx.state.stat:
        state = "dropped" if all(dead_letter.gone_ms for dead_letter in dead_letters) else "dead"
        why = f"its topic {dead_letters[0].origin.topic!r} was deleted, only its dead letter is left"
        return GroupLife(group.name, state, why, events_of(tx, offset, 0, (), (), dead_letters))
    rows = [row for row in lease_history.rows(tx.kv, topic.topic_id, queue, offset) if row.group_id == group.group_id]
    held = [one for one in holding.get((topic.topic_id, queue, offset), ()) if one.ck.group_id == group.group_id]
    events = events_of(tx, offset, 0, rows, held, dead_letters)
    data = _read(tx, dead_letters[0].topic_id, dead_letters[0].spot)
    opened = deadletter.opened(data) if data is not None else None
    subject = Subject(group, topic, queue, offset, opened[0] if opened else None, lost=True, damaged=False)
    return GroupLife(group.name, *standing(tx, subject, held, dead_letters, events, [RETRIES_MAX]), events)


# ── Messages in the log ──────────────────────────────────────────────────────────────────────────────────────────────


def _life(
    tx: Tx,
    command: WhyPiece,
    stored: Stored,
    dead_letters: list[TracedDeadLetter],
    held: Holding,
    looks: list[int],
) -> MessageLife:
    """The state of a message for each group that reads its topic, or for the requested group."""
    topic, spot = stored.topic, stored.spot
    rows = lease_history.rows(tx.kv, topic.topic_id, spot.queue, spot.offset)
    own = [dead_letter for dead_letter in dead_letters if _is_of(dead_letter, stored)]
    data = _read(tx, topic.topic_id, spot)
    groups = []
    for group_id in tx.state.topic_groups.get(topic.topic_id, ()):
        group = tx.state.groups.get(group_id)
        if group is None or command.group not in ("", group.name):
            continue
        mine = [one for one in held.get((topic.topic_id, spot.queue, spot.offset), ()) if one.ck.group_id == group_id]
        dead = [dead_letter for dead_letter in own if _group_of(tx, dead_letter) == group]
        lives = [row for row in rows if row.group_id == group_id]
        events = events_of(tx, spot.offset, spot.stored_ms, lives, mine, dead)
        damaged = not (stored.readable or stored.lost)
        redriven = any(event.what == "redriven" for event in events)
        subject = Subject(
            group=group,
            topic=topic,
            queue=spot.queue,
            offset=spot.offset,
            data=data,
            lost=stored.lost,
            damaged=damaged,
            stored_ms=0 if redriven else spot.stored_ms,
        )
        groups.append(GroupLife(group.name, *standing(tx, subject, mine, dead, events, looks), events))
    if command.group and not groups:
        why = f"the group has never named topic {topic.name!r}: it starts with its first Pop or Pull"
        groups = [GroupLife(command.group, "before start", why, [])]
    return MessageLife(
        topic=topic.name,
        queue=spot.queue,
        offset=spot.offset,
        stored_ms=spot.stored_ms,
        place="stored",
        due_ms=0,
        groups=groups,
    )


def _given_up(stored: Stored) -> MessageLife:
    spot = stored.spot
    return MessageLife(
        topic=GIVE_UP_TOPIC,
        queue=spot.queue,
        offset=spot.offset,
        stored_ms=spot.stored_ms,
        place="given up",
        due_ms=0,
        groups=[],
    )


def _not_visible(tx: Tx, command: WhyPiece, spotted: Spotted) -> MessageLife | None:
    """A delayed message with its due time, or a half one with its next check back; None when it has moved meanwhile."""
    topic = tx.state.topics.get(spotted.topic_id)
    if topic is None:
        return None
    if spotted.stage == DELAYED:
        raw = tx.kv.get("sched", spotted.key[4:] + spotted.key[:4])
        if raw is None or delay.message_id_of(raw) != command.message_id:
            return None
        due_ms = SCHED_KEY.unpack(spotted.key[4:] + spotted.key[:4])[1]
        return MessageLife(
            topic=topic.name,
            queue=0,
            offset=0,
            stored_ms=delay.stored_ms_of(raw),
            place="delayed",
            due_ms=due_ms,
            groups=[],
        )
    half, raw = transaction.find_half(tx, *HALF_KEY.unpack(spotted.key)), tx.kv.get("hmsg", spotted.key)
    if half is None or raw is None or packed_message_id(raw[U32.size :]) != command.message_id:
        return None
    return MessageLife(
        topic=topic.name, queue=0, offset=0, stored_ms=half.stored_ms, place="half", due_ms=half.next_ms, groups=[]
    )
