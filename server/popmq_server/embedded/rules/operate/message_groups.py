"""Message groups for operators: lists waiting, locked and stopped ones, and resumes stopped ones.

stopped ──── resume ────────▶ its head is delivered again, its attempts from 0
        ──── dead letter ───▶ the head goes to the dead letter topic, the message group continues after it

Usually the head alone has stopped its message group. But messages of one lease may fail separately: a message that
fails later may stand before the one that stopped the group, or stop it too. Resume releases all of them.

In a LITE topic each lite topic is one message group, with its name.

    a list    stopped ─────────────▶ waiting ────────────────▶ leased only
              sorted numbers         fwait, group by group     a walk over CheckPoints         in pieces of LOOKS_MAX
"""

import re
from collections.abc import Callable

from popmq_server.contract.commands import ResumeMessageGroup, queries
from popmq_server.contract.commands.numbers import MessageGroupNumbers, Rows
from popmq_server.embedded.rules.delivery import deadletter, fifo, lease_history
from popmq_server.embedded.rules.delivery.fifo import Waiting
from popmq_server.embedded.rules.delivery.subscription import resolve
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.rules.topics.log import Log, located
from popmq_server.embedded.state import leases, ready_groups
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import checkpoint
from popmq_server.embedded.store.checkpoint import (
    FIFO,
    FIRST_POP,
    CheckPoint,
    Run,
    members_of,
)
from popmq_server.embedded.store.keys import FWAIT_KEY, STAT_KEY, U32, U64, following
from popmq_server.errors import Refused, invalid, not_a_page
from popmq_server.values.fields import MESSAGE_GROUP, text
from popmq_server.values.ids import GroupTopic, MessageGroup
from popmq_server.values.outgoing import hash8
from popmq_server.values.records import Topic

#: Steps of one piece of a list of message groups, and the cost of a row; message groups that are looked up together.
LOOKS_MAX, ROW_COST, PAGE = 2000, 5, 100


def listed(tx: Tx, query: queries.MessageGroups) -> Rows[MessageGroupNumbers]:
    """One piece of the list of message groups, stopped ones first; at most `rows_max`, which is set."""
    group, topic = readers.group(tx, query.group), registry.topic(tx, query.topic)
    if group is None or topic is None or topic.type != "LITE":
        group, topic = resolve(tx, query.topic, query.group)
    stage, _, at = (query.after or "stopped ").partition(" ")
    if stage not in _IS_PLACE or not _IS_PLACE[stage](at):
        raise not_a_page(query.after)
    page = _Page(tx, (group.group_id, topic.topic_id), topic, query.rows_max)
    stages = {"stopped": page.stopped, "waiting": page.waiting, "leased": page.leased}
    for name in ("stopped",) if query.stopped_only else stages:
        if name == stage:
            if after := stages[name](at):
                return Rows(page.rows.values(), f"{name} {after}")
            stage, at = _NEXT[name], ""
    return Rows(page.rows.values())


#: The stages of the list, each with the next.
_NEXT = {"stopped": "waiting", "waiting": "leased", "leased": ""}
#: The format of the place in each stage: a number, the beginning of a key in hex digits, a CheckPoint and a member.
_IS_PLACE: dict[str, Callable[[str], object]] = {
    "stopped": re.compile(r"\d{0,20}", re.ASCII).fullmatch,
    "waiting": re.compile(r"([0-9a-f]{2}){0,24}").fullmatch,
    "leased": re.compile(r"(\d{1,19}\.\d{1,5})?", re.ASCII).fullmatch,
}


class _Page:
    """One piece of a list: each stage adds rows, and returns the place to continue at; "" = the stage has ended."""

    def __init__(self, tx: Tx, where: GroupTopic, topic: Topic, rows_max: int) -> None:
        self.rows: dict[MessageGroup, MessageGroupNumbers] = {}
        self._tx = tx
        self._where = where
        self._lite = topic.type == "LITE"
        self._rows_max = rows_max
        self._left = LOOKS_MAX
        self._log = Log(tx.kv)

    @property
    def _full(self) -> bool:
        return len(self.rows) >= self._rows_max or self._left <= 0

    @property
    def _wanted(self) -> int:
        return max(1, min(PAGE, self._rows_max - len(self.rows)))

    def _add(self, key: MessageGroup, position: int, size: int) -> None:
        """Adds a row; its name is that of the lite topic, or is read from one of its messages."""
        state, (_, topic_id, message_group) = self._tx.state, key
        self._left -= ROW_COST
        name = state.topics[topic_id].lite_topic if self._lite else ""
        if not name and (read := self._log.fetch(topic_id, position, size)) is not None:
            name = text(read[1], MESSAGE_GROUP)
        reasons = state.stopped.get(key, ())
        leased = state.locks.get(key, (0, 0, 0))[0]
        self.rows[key] = MessageGroupNumbers(
            name or message_group.hex(),
            state.waiting.get(key, 0),
            leased,
            bool(reasons),
            reasons[0][1] if reasons else "",
        )

    def stopped(self, at: str) -> str:
        number = int(at or -1)
        while found := ready_groups.stopped_after(self._tx.state, self._where, number, self._wanted):
            for number, key in found:
                front = fifo.front(self._tx, (key[0], key[1]), key[2])
                self._add(key, *((front.position, front.size) if front else (0, 0)))
                if self._full:
                    return str(number)
        return ""

    def waiting(self, at: str) -> str:
        """Goes from message group to message group, in a LITE topic from lite topic to lite topic."""
        kv, state = self._tx.kv, self._tx.state
        prefix = fifo.prefix_of(self._where)[: U32.size if self._lite else None]
        start = bytes.fromhex(at)
        while (found := next(kv.scan("fwait", prefix, start), None)) is not None:
            entry = fifo.waiting_of(*found)
            group_id, topic_id, message_group, _ = FWAIT_KEY.unpack(entry.key)
            key = (group_id, topic_id, message_group)
            start = following(entry.key[: -U64.size])
            self._left -= 1
            if self._lite and state.parent_of(topic_id) != self._where[1]:
                start = following(entry.key[: STAT_KEY.size])
            elif key not in state.stopped:
                self._add(key, entry.position, entry.size)
            if self._full:
                return start.hex()
        return ""

    def leased(self, at: str) -> str:
        """Walks CheckPoints, for message groups of which nothing waits."""
        tx = self._tx
        start, skipped = map(int, (at or "0.0").split("."))
        for key, value in tx.kv.scan("ck", b"", U64.pack(start)):
            ck_id = U64.unpack(key)[0]
            if self._full:
                return f"{ck_id}.0"
            self._left -= 1
            if (
                self._is_there(*checkpoint.pair_of(value))
                and (ck := tx.state.ck.get(ck_id)) is not None
                and ck.message_groups
            ):
                member = self._add_leased(ck, skipped if ck_id == start else 0)
                if member < ck.members:
                    return f"{ck_id}.{member}"
        return ""

    def _add_leased(self, ck: CheckPoint, begin: int) -> int:
        """Adds the message groups of the undone members from `begin` on, unless a message of them waits; returns the
        member to continue at.
        """
        state, first = self._tx.state, dict[MessageGroup, int]()
        self._left -= ck.members
        for member in members_of(leases.undone(self._tx, ck)):
            first.setdefault((ck.group_id, ck.topic_id, ck.message_groups[member]), member)
        for key, member in first.items():
            if member >= begin and key in state.locks and key not in state.waiting:
                if len(self.rows) >= self._rows_max:
                    return member
                ((*_, position, size),) = located(self._tx.kv, ck, 1 << member)
                self._add(key, position, size)
        return ck.members

    def _is_there(self, group_id: int, topic_id: int) -> bool:
        return group_id == self._where[0] and self._where[1] in (topic_id, self._tx.state.parent_of(topic_id))


def resume(tx: Tx, command: ResumeMessageGroup) -> bool:
    """Resumes a stopped message group; Refused MESSAGE_NOT_FOUND if it is not stopped.

    Returns whether stopped messages are left: one transaction writes a bounded number of bytes of dead letters.
    """
    group, topic = readers.group(tx, command.group), registry.topic(tx, command.topic)
    if group is not None and topic is not None and topic.type == "LITE":
        topic = lite_topics.find(tx, topic, command.message_group) or topic
    else:
        group, topic = resolve(tx, command.topic, command.group)
    if not topic.in_order and topic.type != "LITE":
        raise invalid(
            f"topic {topic.name!r} has no message groups, its type is {topic.type}",
            field="topic",
            action="name a topic of type FIFO or LITE",
        )
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
            fifo.put(
                tx,
                where,
                entry._replace(attempts=0, past=entry.past & FIRST_POP, stopped=0, reason=f"resumed: {entry.reason}"),
            )
    tx.wake(*where)
    return False


def _dead_letter(tx: Tx, where: GroupTopic, entry: Waiting) -> None:
    """Moves a stopped message to the dead letter topic, as the only member of a CheckPoint that is not stored."""
    run = Run(entry.queue, entry.offset, 1, entry.attempts, entry.position, entry.size, entry.past)
    chunk = Log(tx.kv).chunk_of(entry.position)
    dead = leases.new_checkpoint(tx, where, FIFO, 1, (run,), ((0, chunk),))
    deadletter.dead_letter(tx, dead, 1, entry.reason, lease_history.NO_LEASE)
