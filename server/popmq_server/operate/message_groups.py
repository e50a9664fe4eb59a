"""Message groups as an operator sees them: what waits, what is locked, what a failure stopped; and going on again.

stopped ──── resume ────────▶ its head is tried anew, its attempts from 0
        ──── dead letter ───▶ the head goes to the dead-letter topic, the message group goes on behind it

Mostly it is the head that stopped it. Messages of one lease may fail apart, though: then what failed last stands in
front of what stopped the message group, or both did; resume lets all of them go on.

Of a LITE topic each lite topic is one message group, by its name.
"""

import os
from typing import NamedTuple

from popmq_server.commands import ResumeMessageGroup
from popmq_server.delivery import deadletter, fifo, history
from popmq_server.delivery.fifo import Waiting
from popmq_server.delivery.subscription import resolve
from popmq_server.errors import Refused, invalid
from popmq_server.lite import lite_topics
from popmq_server.model.checkpoint import FIFO, CheckPoint, Run, members_of
from popmq_server.model.fields import MESSAGE_GROUP, text
from popmq_server.model.records import Topic
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import hash8
from popmq_server.topics.log import Log, located


class MessageGroupNumbers(NamedTuple):
    """One message group: `waiting` for its turn, `leased` undone under leases and in backoff, stopped and why."""

    name: str
    waiting: int
    leased: int
    stopped: bool
    reason: str


def listed(
    tx: Tx, topic_name: str, group_name: str, groups_max: int, stopped_only: bool
) -> tuple[list[MessageGroupNumbers], int, int]:
    """At most `groups_max` message groups, the stopped first; how many messages wait in all, how many are stopped."""
    group, topic = tx.group(group_name), tx.topic(topic_name)
    if group is None or topic is None or topic.type != "LITE":
        group, topic = resolve(tx, topic_name, group_name)
    where, state = (group.group_id, topic.topic_id), tx.state

    def is_there(key: tuple[int, int, bytes]) -> bool:
        return key[:2] == where or (key[0], state.parent_of(key[1])) == where

    stopped = {key: None for key in state.stopped if is_there(key)}
    keys = dict(stopped)
    if not stopped_only:
        keys |= {key: None for table in (state.waiting, state.locks) for key in table if is_there(key)}
    shown = list(keys)[:groups_max]
    names = {} if topic.type == "LITE" else _names(tx, topic, where, {key[2] for key in shown})
    rows = [
        MessageGroupNumbers(
            names.get(key[2]) or state.topics[key[1]].lite_topic or key[2].hex(),
            state.waiting.get(key, 0),
            state.locks.get(key, (0, 0, 0))[0],
            key in stopped,
            state.stopped[key][0][1] if key in stopped else "",
        )
        for key in shown
    ]
    stat = state.stat.get(where)
    return rows, stat.waiting if stat else 0, len(stopped)


def _names(tx: Tx, topic: Topic, where: tuple[int, int], wanted: set[bytes]) -> dict[bytes, str]:
    """The texts of hashed message groups, read from one of their messages each, waiting or leased."""
    log, names = Log(tx.kv), dict[bytes, str]()
    places: dict[bytes, tuple[int, int]] = {}
    for message_group in wanted:
        if (entry := fifo.front(tx, where, message_group)) is not None:
            places[message_group] = entry.position, entry.size
    for ck in tx.state.ck.all_of(lambda *pair: pair == where) if wanted - places.keys() else ():
        undone = fifo.undone(tx, ck)
        for unit, member in zip(located(tx, ck, undone), members_of(undone), strict=True):
            places.setdefault(ck.groups[member], unit[2:])
        if not wanted - places.keys():
            break
    for message_group, (position, size) in places.items():
        if (read := log.fetch(topic.topic_id, position, size)) is not None:
            names[message_group] = text(read[1], MESSAGE_GROUP)
    return names


def resume(tx: Tx, command: ResumeMessageGroup) -> bool:
    """Lets a stopped message group go on; Refused MESSAGE_NOT_FOUND when it is not stopped.

    Whether something is left, since one transaction writes only so many bytes of dead letters.
    """
    group, topic = tx.group(command.group), tx.topic(command.topic)
    if group is not None and topic is not None and topic.type == "LITE":
        topic = lite_topics.find(tx, topic, command.message_group) or topic
    else:
        group, topic = resolve(tx, command.topic, command.group)
    if not topic.in_order and topic.type != "LITE":
        raise invalid(f"topic {topic.name!r} has no message groups, its type is {topic.type}", field="topic")
    where, message_group = (group.group_id, topic.topic_id), hash8(command.message_group)
    stopped = fifo.stopped(tx, where, message_group)
    if not stopped:
        raise Refused(
            "MESSAGE_NOT_FOUND",
            f"message group {command.message_group!r} is not stopped for group {group.name!r}",
            field="message_group",
            action=f"see: popmq message-groups list {topic.name} {group.name} --stopped",
        )
    letters = deadletter.budget(tx)
    for done, entry in enumerate(stopped):
        if command.dead_letter and not letters.fits(entry.size):
            if letters.no_room and not done:
                raise letters.refusal()
            return True
        fifo.remove(tx, where, entry)
        if command.dead_letter:
            _bury(tx, where, entry)
        else:
            fifo.put(tx, where, entry._replace(attempts=0, stopped=0, reason=f"resumed: {entry.reason}"))
    tx.wake(*where)
    return False


def _bury(tx: Tx, where: tuple[int, int], entry: Waiting) -> None:
    """What stopped a message group goes to the dead-letter topic, as a CheckPoint of its own that nobody stores."""
    run = Run(entry.queue, entry.offset, 1, entry.attempts, entry.position, entry.size, entry.first_pop_ms)
    chunk = Log(tx.kv).chunk_of(entry.position)
    nonce = int.from_bytes(os.urandom(8), "big")
    letter = CheckPoint(tx.next("ck_id"), *where, FIFO, 0, nonce, tx.now_ms, "", "", "", (run,), 1, ((0, chunk),))
    deadletter.bury(tx, letter, 1, entry.reason, history.NO_LEASE)
