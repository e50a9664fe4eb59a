"""Message groups for operators: lists waiting, locked and stopped ones, and resumes stopped ones.

stopped ──── resume ────────▶ its head is delivered again, its attempts from 0
        ──── dead letter ───▶ the head goes to the dead letter topic, the message group continues behind it

Usually only the head has stopped it. But messages of one lease may fail separately: then a later failure stands in
front of the message that stopped the message group, or both stopped it; resume releases all of them.

In a LITE topic each lite topic is one message group, with its name.
"""

from popmq_server.commands import ResumeMessageGroup, queries
from popmq_server.commands.numbers import MessageGroupNumbers
from popmq_server.delivery import deadletter, fifo, history
from popmq_server.delivery.fifo import Waiting
from popmq_server.delivery.subscription import resolve
from popmq_server.errors import Refused, invalid
from popmq_server.lite import lite_topics
from popmq_server.model.checkpoint import FIFO, Run, members_of
from popmq_server.model.fields import MESSAGE_GROUP, text
from popmq_server.model.ids import GroupTopic, MessageGroup
from popmq_server.model.records import Topic
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import hash8
from popmq_server.topics.log import Log, located


def listed(tx: Tx, query: queries.MessageGroups) -> tuple[list[MessageGroupNumbers], int, int]:
    """(at most `groups_max` message groups, stopped first; the number of waiting messages; of stopped groups)."""
    group, topic = tx.group(query.group), tx.topic(query.topic)
    if group is None or topic is None or topic.type != "LITE":
        group, topic = resolve(tx, query.topic, query.group)
    where, state = (group.group_id, topic.topic_id), tx.state

    def is_there(key: MessageGroup) -> bool:
        return key[:2] == where or (key[0], state.parent_of(key[1])) == where

    stopped = {key: None for key in state.stopped if is_there(key)}
    keys = dict(stopped)
    if not query.stopped_only:
        keys |= {key: None for table in (state.waiting, state.locks) for key in table if is_there(key)}
    shown = list(keys)[: query.groups_max]
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


def _names(tx: Tx, topic: Topic, where: GroupTopic, wanted: set[bytes]) -> dict[bytes, str]:
    """The names of hashed message groups, each read from one of its waiting or leased messages."""
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
    """Resumes a stopped message group; Refused MESSAGE_NOT_FOUND if it is not stopped.

    Returns whether stopped messages are left: one transaction writes only so many bytes of dead letters.
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
    budget = deadletter.budget(tx)
    for done, entry in enumerate(stopped):
        if command.dead_letter and not budget.fits(entry.size):
            if budget.no_room and not done:
                raise budget.refusal()
            return True
        fifo.remove(tx, where, entry)
        if command.dead_letter:
            _dead_letter(tx, where, entry)
        else:
            fifo.put(tx, where, entry._replace(attempts=0, stopped=0, reason=f"resumed: {entry.reason}"))
    tx.wake(*where)
    return False


def _dead_letter(tx: Tx, where: GroupTopic, entry: Waiting) -> None:
    """Moves a stopped message to the dead letter topic, as the only member of a CheckPoint that is not stored."""
    run = Run(entry.queue, entry.offset, 1, entry.attempts, entry.position, entry.size, entry.first_pop_ms)
    chunk = Log(tx.kv).chunk_of(entry.position)
    dead = tx.new_checkpoint(where, FIFO, 1, (run,), ((0, chunk),))
    deadletter.dead_letter(tx, dead, 1, entry.reason, history.NO_LEASE)
