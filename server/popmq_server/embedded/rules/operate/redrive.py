"""Redrive: delivers dead letters again, without loss or duplicates. Discard: removes them.

    %DLQ%group          one transaction                                      origin topic
    dead letter ─┬─▶ a mark in `gone`: readers skip it, and it is not counted
                 └─▶ a new record without the origin, in a chunk that no queue names ◀── an entry of the retry topic,
                                                                                         attempts 0 (FIFO: it waits)

The record is new because a dead letter may outlive its origin's chunk. The entry holds the message's old queue and
offset, so `why` finds its whole history there. If it fails again, it becomes a new dead letter. A redrive takes several
pieces; after a crash between two, a repeated request continues with the dead letters that are left.

A dead letter stays if its origin topic was deleted, or deleted and created again: the new topic never had the message.
In a FIFO topic it is only marked if its message will be delivered anyway (after a reset): one place, one message. It
may be leased only if its message group is locked; only then a piece searches for its CheckPoint first (holders.py).

Discard only marks dead letters. Nothing is delivered, so the origin may be gone, and a full store does not refuse it.
`why` shows it by a row of history at the place where the message came from. The bytes are freed as those of redriven
dead letters are: retention.py.

With an empty group name, the dead letters are given-up half messages: they are committed to their topics
(end_transaction.py).

See docs/decisions/0009-redrive-as-new-record.md.
"""

from typing import NamedTuple

from popmq_server.contract.commands import Failure
from popmq_server.embedded.operations import (
    DiscardPiece,
    FindDeadLetters,
    HolderSearch,
    LettersFound,
    MessagePlace,
    RedrivenPiece,
    RedrivePiece,
)
from popmq_server.embedded.rules.delivery import (
    deadletter,
    fifo,
    lease_history,
    retry,
    sweep,
)
from popmq_server.embedded.rules.delivery.deadletter import Origin
from popmq_server.embedded.rules.delivery.subscription import bind
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.rules.operate import holders
from popmq_server.embedded.rules.results import stored
from popmq_server.embedded.rules.sending import delay, unique
from popmq_server.embedded.rules.sending.placing import Placing
from popmq_server.embedded.rules.topics import index, log, readers, registry
from popmq_server.embedded.rules.topics.chunk import append_bare
from popmq_server.embedded.rules.topics.log import Log, entries, over_hole
from popmq_server.embedded.state import leases, marks
from popmq_server.embedded.state.checkpoints import DONE
from popmq_server.embedded.state.space import GROW, entries_bytes, messages_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import FWAIT_KEY, RQ_VALUE
from popmq_server.errors import Refused, group_not_found, topic_not_found
from popmq_server.values import fields, reasons
from popmq_server.values.ids import GroupTopic, TopicId
from popmq_server.values.message import DEAD_LETTER_PREFIX, GIVE_UP_TOPIC, dead_letter_topic
from popmq_server.values.outgoing import Outgoing, hash8
from popmq_server.values.records import (
    Group,
    Subscription,
    SweepWork,
    Topic,
)

#: Dead letters that one piece examines, and bytes of those that it moves; one is always allowed.
PIECE_LETTERS = 200
PIECE_BYTES = 1 << 20
#: Steps of one search for dead letters by id (index.py).
SEARCH_STEPS = 5000
#: The reason in the retry topic's entry of a redriven message.
REASON = "redriven"


class DeadLetter(NamedTuple):
    """A decoded dead letter: the original message, and its origin."""

    offset: int
    message: Outgoing
    origin: Origin


class Chosen(NamedTuple):
    """Dead letters to look at: (offset, position, size) of each.

    `handled`: how many of the named offsets were looked up. `next`, `stop`: the range, if all are redriven.
    """

    units: list[tuple[int, int, int]]
    handled: int = 0
    next: int = 0
    stop: int = 0


def redrive(tx: Tx, command: RedrivePiece) -> RedrivenPiece:
    """Redrives one piece. Dead letters that cannot be redriven are reported as failures, and stay."""
    walk = command.walk
    if walk is not None and not holders.is_done(walk := holders.step(tx, walk)):
        return RedrivenPiece({}, [], 0, command.start, command.stop, walk)
    group, dead_letters = dead_letters_of(tx, command.group)
    failures: list[Failure] = []
    if command.offsets is None:
        chosen = following(tx, dead_letters, command.start, command.stop)
    else:
        chosen = named(tx, dead_letters, command.offsets, failures)
    by_origin: dict[int, list[DeadLetter]] = {}
    for unit in chosen.units:
        _sort_in(tx, dead_letters, unit, command, by_origin, failures)
    counts: dict[str, int] = {}
    sizes = [len(dead_letter.message.data) for alike in by_origin.values() for dead_letter in alike]
    if not tx.room.has(GROW, messages_bytes(sizes) + entries_bytes(len(sizes), REASON)):
        raise tx.room.refusal()
    if not holders.is_done(walk := _walk(tx, group, by_origin, walk)):
        return RedrivenPiece({}, [], 0, command.start, command.stop, walk)
    for topic_id, alike in by_origin.items():
        origin = tx.state.topics[topic_id]
        if group is None:
            _commit(tx, origin, alike)
        else:
            _deliver(tx, group, origin, alike, walk)
            if group.results_keep_ms:
                stored.store_forgotten(tx, group, [dead_letter.message.message_id for dead_letter in alike])
        deadletter.mark_gone(tx, dead_letters.topic_id, 0, [dead_letter.offset for dead_letter in alike])
        counts[origin.name] = len(alike)
    return RedrivenPiece(counts, failures, *chosen[1:])


def dead_letters_of(tx: Tx, name: str) -> tuple[Group | None, Topic]:
    """A group and its dead letter topic; for an empty name, the topic of given-up half messages."""
    group = readers.group(tx, name) if name else None
    if name and group is None:
        raise group_not_found(name)
    topic = registry.topic(tx, dead_letter_topic(name) if name else GIVE_UP_TOPIC)
    if topic is None:
        raise topic_not_found(dead_letter_topic(name) if name else GIVE_UP_TOPIC, "group")
    return group, topic


def following(tx: Tx, dead_letters: Topic, start: int, stop: int) -> Chosen:
    """The next dead letters from `start` on, without those that are gone."""
    where = (dead_letters.topic_id, 0)
    at = max(start, tx.state.queue_min.get(where, 0))
    stop = stop or tx.state.queue_max.get(where, 0)
    found, units, room = list[tuple[int, int, int]](), list[tuple[int, int, int]](), PIECE_BYTES
    while at < stop and not found:
        found = entries(tx.kv, *where, at, min(PIECE_LETTERS, stop - at))
        at = at if found else over_hole(tx.kv, *where, at, stop)
    gone = set(marks.redriven(tx.kv, *where, at, at + PIECE_LETTERS))
    for unit in found:
        room -= 0 if unit[0] in gone else unit[2]
        if units and room < 0:
            break
        at = unit[0] + 1
        if unit[0] not in gone:
            units.append(unit)
    return Chosen(units, 0, at, max(at, stop))


def named(tx: Tx, dead_letters: Topic, offsets: tuple[int, ...], failures: list[Failure]) -> Chosen:
    """The dead letters at these offsets; a missing one is a failure."""
    where, room, units = (dead_letters.topic_id, 0), PIECE_BYTES, list[tuple[int, int, int]]()
    seen: set[int] = set()
    for handled, offset in enumerate(offsets[:PIECE_LETTERS]):
        if offset in seen:
            continue
        seen.add(offset)
        found = entries(tx.kv, *where, offset, 1)
        if not found or deadletter.is_gone(tx.kv, *where, offset):
            failures.append(
                Failure(offset, "", not_there(dead_letters, offset, "was redriven" if found else "does not exist"))
            )
            continue
        room -= found[0][2]
        if units and room < 0:
            return Chosen(units, handled)
        units += found
    return Chosen(units, min(len(offsets), PIECE_LETTERS))


def _show(dead_letters: Topic) -> str:
    """The command that lists the existing dead letters."""
    group = dead_letters.name.removeprefix(DEAD_LETTER_PREFIX)
    return f"see: popmq dlq show {group}" if dead_letters.is_dead_letter else f"see: popmq export {dead_letters.name} -"


def not_there(dead_letters: Topic, offset: int, how: str) -> Refused:
    return Refused(
        "MESSAGE_NOT_FOUND",
        f"the dead letter at offset {offset} of {dead_letters.name!r} {how}",
        field="offsets",
        action=_show(dead_letters),
    )


def _sort_in(
    tx: Tx,
    dead_letters: Topic,
    unit: tuple[int, int, int],
    command: RedrivePiece,
    by_origin: dict[int, list[DeadLetter]],
    failures: list[Failure],
) -> None:
    """Reads one dead letter and adds it to those of its origin, or to the failures."""
    offset, position, size = unit
    read = Log(tx.kv).fetch(dead_letters.topic_id, position, size)
    opened = deadletter.opened(read[1]) if read else None
    if opened is None:
        failures.append(
            Failure(offset, "", not_there(dead_letters, offset, "cannot be read: its stored bytes are damaged"))
        )
        return
    dead_letter = DeadLetter(offset, fields.outgoing(opened[0]), opened[1])
    message_id = dead_letter.message.message_id
    if other := other_than(command, dead_letter.origin):
        if command.offsets is not None:
            failures.append(Failure(offset, message_id, not_there(dead_letters, offset, other)))
        return
    found = _origin_of(tx, dead_letter)
    if isinstance(found, Refused):
        failures.append(Failure(offset, message_id, found))
    else:
        by_origin.setdefault(found.topic_id, []).append(dead_letter)


def other_than(command: RedrivePiece | DiscardPiece, origin: Origin) -> str:
    """Why a dead letter is not among those that a command wants; "" if it is."""
    if command.topic not in ("", origin.topic):
        return f"came from topic {origin.topic!r}"
    return reasons.other_than(origin.reason, command.reason, command.exception)


def _origin_of(tx: Tx, dead_letter: DeadLetter) -> Topic | Refused:
    """The topic that a dead letter came from, unless that was deleted or created again."""
    origin = dead_letter.origin
    topic = registry.topic(tx, origin.topic)
    if topic is None:
        return topic_not_found(origin.topic, "topic")
    if topic.type == "LITE":
        return _lite_origin(tx, topic, dead_letter)
    if topic.created_ms > origin.dead_ms:
        return Refused(
            "TOPIC_NOT_FOUND",
            f"topic {origin.topic!r} was deleted and created again after this message became a dead letter",
            field="topic",
            action="read the dead letter (`popmq dlq show`), and send its message to the new topic",
        )
    return topic


def _lite_origin(tx: Tx, parent: Topic, dead_letter: DeadLetter) -> Topic | Refused:
    """The lite topic that a dead letter came from, unless that was removed since."""
    name = dead_letter.message.extra.lite_topic if dead_letter.message.extra else ""
    lite_topic = lite_topics.find(tx, parent, name)
    if lite_topic is None or max(lite_topic.created_ms, parent.created_ms) > dead_letter.origin.dead_ms:
        return Refused(
            "TOPIC_NOT_FOUND",
            f"lite topic {name!r} of topic {parent.name!r} was removed after this message became a dead letter",
            field="topic",
            action="read the dead letter (`popmq dlq show`), and send its message again",
        )
    return lite_topic


# ── Delivery ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _walk(
    tx: Tx, group: Group | None, by_origin: dict[int, list[DeadLetter]], walk: HolderSearch | None
) -> HolderSearch:
    """The walk that finds which of these messages are leased: `walk`, or a new one after its first piece.

    A new walk has the places of all messages, since more message groups may be locked before its last piece. `walk`
    lacks some of them if another redrive was faster, so that this piece reaches farther.
    """
    known = walk or HolderSearch(frozenset(), at=DONE)
    if group is None:
        return known
    places, locked = set[MessagePlace](), set[MessagePlace]()
    for topic_id, alike in by_origin.items():
        where = (group.group_id, TopicId(topic_id))
        if not tx.state.topics[topic_id].in_order:
            continue
        for dead_letter in alike:
            place = (topic_id, dead_letter.origin.queue, dead_letter.origin.offset)
            places.add(place)
            if (*where, fifo.message_group_hash(dead_letter.message.data)) in tx.state.locks:
                locked.add(place)
    return known if locked <= known.places else holders.step(tx, HolderSearch(frozenset(places), group.group_id))


def _deliver(tx: Tx, group: Group, origin: Topic, dead_letters: list[DeadLetter], walk: HolderSearch) -> None:
    """Puts the messages in the group's retry topic of the origin, attempts from 0, and reverts the counts as dead.

    A group whose subscription expired after it had counted them begins anew, with fewer dead letters than these.
    """
    if origin.parent_id:
        bind(tx, group, tx.state.topics[origin.parent_id])
    bind(tx, group, origin)
    where = (group.group_id, origin.topic_id)
    counted = min(tx.state.stat[where].dead, len(dead_letters))
    in_order = _in_order(tx, where, origin)
    fresh = _not_coming(tx, where, dead_letters, walk) if in_order else dead_letters
    readers.count(tx, where, dead=-counted, start=counted - len(fresh))
    places = append_bare(tx, origin, tuple(dead_letter.message for dead_letter in fresh))
    if in_order:
        _put_waiting(tx, where, fresh, places)
    else:
        _to_retry(tx, where, fresh, places)
    lease_history.note(tx, where, [dead_letter.origin[1:3] for dead_letter in dead_letters], lease_history.REDRIVEN)
    tx.wake(*where)


def _in_order(tx: Tx, where: GroupTopic, origin: Topic) -> bool:
    """Whether to put messages in their message groups; during a switch to POP, the sweep moves them there later.

    First finishes a reset that is still removing messages there: it could not tell these from the others.
    """
    if not origin.in_order or tx.state.subscriptions.get(where, Subscription()).pulls:
        return False
    while (left := tx.state.sweeps.get(where, SweepWork())).clear_lines:
        sweep.step(tx, where)
    return not left.to_lines


def _to_retry(tx: Tx, where: GroupTopic, dead_letters: list[DeadLetter], places: list[tuple[int, int]]) -> None:
    """Puts an entry in the retry topic for each message, and pins the chunks."""
    entries = list[tuple[int, bytes]]()
    for dead_letter, (position, size) in zip(dead_letters, places, strict=True):
        value = RQ_VALUE.pack(position, size, 0, dead_letter.origin.queue, dead_letter.origin.offset, 0, 0, 0)
        entries.append((position, value + REASON.encode()))
    retry.put(tx, where, entries)


def _put_waiting(tx: Tx, where: GroupTopic, dead_letters: list[DeadLetter], places: list[tuple[int, int]]) -> None:
    """FIFO: each waits at its old offset, before later messages of its message group."""
    for dead_letter, (position, size) in zip(dead_letters, places, strict=True):
        key = _key(where, dead_letter)
        fifo.put(tx, where, fifo.Waiting(key, position, size, 0, dead_letter.origin.queue, 0, 0, 0, 0, REASON))


def _key(where: GroupTopic, dead_letter: DeadLetter) -> bytes:
    return FWAIT_KEY.pack(*where, fifo.message_group_hash(dead_letter.message.data), dead_letter.origin.offset)


def _not_coming(tx: Tx, where: GroupTopic, dead_letters: list[DeadLetter], walk: HolderSearch) -> list[DeadLetter]:
    """Dead letters, each once, whose message is neither unread (after a reset) nor waiting nor leased."""
    leased = {place for place, one in holders.held(tx, walk) if leases.undone(tx, one.ck) & one.bit}
    fresh: dict[bytes, DeadLetter] = {}
    for dead_letter in dead_letters:
        queue, offset = place = dead_letter.origin.queue, dead_letter.origin.offset
        unread = offset >= tx.state.poff.get((*where, queue), 0) and log.is_readable(tx.kv, where[1], queue, offset)
        key = _key(where, dead_letter)
        if not unread and (where[1], *place) not in leased and tx.kv.get("fwait", key) is None:
            fresh.setdefault(key, dead_letter)
    return list(fresh.values())


def _commit(tx: Tx, origin: Topic, dead_letters: list[DeadLetter]) -> None:
    """Commits given-up half messages: they become visible, or delayed: a delay counts from now."""
    visible: list[Outgoing] = []
    for message in (dead_letter.message for dead_letter in dead_letters):
        extra = message.extra._replace(transaction=False) if message.extra else None
        message = message._replace(extra=extra)
        place = delay.keep(tx, origin, message)
        if place is None:
            visible.append(message)
        else:
            unique.Ids(tx, origin).move(message, place)
    for message, place in zip(visible, Placing(tx, origin).make_visible(list(enumerate(visible))), strict=True):
        unique.Ids(tx, origin).move(message, place)


# ── By message id ────────────────────────────────────────────────────────────────────────────────────────────────────


def find(tx: Tx, command: FindDeadLetters) -> LettersFound:
    """One piece of the search for dead letters with these ids, and where to continue; 0 = all were searched."""
    _, dead_letters = dead_letters_of(tx, command.group)
    wanted = {hash8(message_id): message_id for message_id in command.message_ids}
    below = index.end(tx.kv, dead_letters.topic_id) if command.below is None else command.below
    hits, below, _ = index.search(tx.kv, dead_letters.topic_id, frozenset(wanted), below, SEARCH_STEPS)
    log, found = Log(tx.kv), dict[int, str]()
    for hit in hits:
        spot = index.spot(tx.kv, dead_letters.topic_id, hit.position)
        if spot is None or deadletter.is_gone(tx.kv, dead_letters.topic_id, spot.queue, spot.offset):
            continue
        read = log.fetch(dead_letters.topic_id, spot.position, spot.size)
        if read is not None and fields.text(read[1], fields.MESSAGE_ID) == wanted[hit.name]:
            found[spot.offset] = wanted[hit.name]
    return LettersFound(found, below)


def discard(tx: Tx, command: DiscardPiece) -> RedrivenPiece:
    """Discards one piece. Named dead letters that are not there are reported as failures."""
    group, dead_letters = dead_letters_of(tx, command.group)
    failures: list[Failure] = []
    if command.offsets is None:
        chosen = following(tx, dead_letters, command.start, command.stop)
    else:
        chosen = named(tx, dead_letters, command.offsets, failures)
    counts: dict[str, int] = {}
    log, offsets, origins = Log(tx.kv), list[int](), list[Origin]()
    for offset, position, size in chosen.units:
        read = log.fetch(dead_letters.topic_id, position, size)
        opened = deadletter.opened(read[1]) if read else None
        origin = opened[1] if opened else Origin()  # a damaged one too is discarded, unless others are wanted
        if other := other_than(command, origin):
            if command.offsets is not None:
                message_id = fields.text(read[1], fields.MESSAGE_ID) if read else ""
                failures.append(Failure(offset, message_id, not_there(dead_letters, offset, other)))
            continue
        counts[origin.topic] = counts.get(origin.topic, 0) + 1
        offsets.append(offset)
        origins.append(origin)
    deadletter.mark_gone(tx, dead_letters.topic_id, 0, offsets)
    if group is not None:
        _note(tx, group, origins)
    return RedrivenPiece(counts, failures, *chosen[1:])


def _note(tx: Tx, group: Group, origins: list[Origin]) -> None:
    """Writes history where the messages came from, if the topic is still there and has the group."""
    places: dict[Topic, list[tuple[int, int]]] = {}
    for origin in origins:
        topic = registry.topic(tx, origin.topic)
        if topic is None or topic.type == "LITE" or topic.created_ms > origin.dead_ms:
            continue
        if (group.group_id, topic.topic_id) in tx.state.stat:
            places.setdefault(topic, []).append((origin.queue, origin.offset))
    for topic, some in places.items():
        lease_history.note(
            tx, (group.group_id, topic.topic_id), some, lease_history.DEAD, lease_history.DISCARDED_REASON
        )
