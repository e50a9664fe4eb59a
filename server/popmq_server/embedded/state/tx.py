"""The unit of work: the transaction of one commit batch.

It has one LMDB transaction, the layers of all tables, the messages staged for the log, and the waiters to wake after
the commit. Handlers (handlers.py) take it as their first argument and change the broker only through it. `flush` writes
the changes of the tables, `merge` makes them visible, `abort` drops them.
"""

import bisect
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from popmq_server.embedded.state import (
    events,
    marks,
    oldest_leased,
    session_ids,
    unseen,
)
from popmq_server.embedded.state.events import Event
from popmq_server.embedded.state.lease_sums import (
    attempt_key,
    locked_counts,
    queue_counts,
    shifted,
)
from popmq_server.embedded.state.space import unlimited
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.checkpoint import (
    BACKOFF,
    CheckPoint,
    Lease,
    Run,
)
from popmq_server.embedded.store.keys import U32, U64
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.store.table import changed
from popmq_server.values.handles import nonce
from popmq_server.values.ids import (
    GroupId,
    GroupQueue,
    GroupTopic,
    TopicId,
)
from popmq_server.values.records import (
    IN_FLIGHT_MAX,
    Counters,
    Group,
    HeldNumbers,
    Lites,
    Stat,
    Topic,
    TopicStat,
)

N = TypeVar("N", Counters, Stat, TopicStat)


class Tx:
    """The transaction of one commit batch. Only the changes that `merge` keeps outlive it."""

    __slots__ = (
        "answered",
        "arrived",
        "coming",
        "dead_budget",
        "events",
        "kv",
        "now_ms",
        "room",
        "staged",
        "staged_count",
        "state",
        "wall_ms",
        "woken",
    )

    def __init__(self, state: State, store: Store, now_ms: int, wall_ms: int | None = None) -> None:
        """Begins an LMDB transaction; `now_ms` is the time of everything in this commit.

        `wall_ms`: the machine's clock, for delivery times given as wall time; None: the same as `now_ms`.
        """
        self.state = state
        self.kv = store.begin()
        state.read_through(self.kv)
        self.now_ms = now_ms
        #: Bytes that may still be written: space.py.
        self.room = unlimited()
        self.wall_ms = now_ms if wall_ms is None else wall_ms
        #: Messages to be written to the log, by topic: topic.py.
        self.staged: dict[int, list[Any]] = {}
        self.staged_count = 0
        #: Bytes of them in topics with a limit of bytes: size_limit.py.
        self.coming: dict[int, int] = {}
        #: Message bytes in the answers of this batch: batch.py.
        self.answered = 0
        #: The dead letters that the commands of this transaction may still write (deadletter.DeadLetterBudget).
        self.dead_budget: Any = None
        #: (group name or None for all groups, topic name or lite_watch.wake_key) that Pops have to look at again.
        self.woken: set[tuple[str | None, str]] = set()
        #: (queue as text or None for all queues, topic name): after the commit the Pulls parked there look again.
        self.arrived: set[tuple[str | None, str]] = set()
        #: Events to report to operators after the commit: events.py.
        self.events: list[Event] = []

    @property
    def dirty(self) -> int:
        """A number that grows with every change that an abort would undo."""
        return self.kv.writes + self.staged_count + self.state.tables.changes.count + self.state.undo.changes

    def next(self, field: str, count: int = 1) -> int:
        """Takes `count` numbers of a counter; returns the first.

        Numbers are never reused, not even after a removal: a handle of an old CheckPoint must not fit a new one.
        """
        counters = self.state.counters[""]
        first: int = getattr(counters, field)
        self.state.counters[""] = _added(counters, {field: count})
        return first

    def topic(self, name: str) -> Topic | None:
        """A topic by name, as this transaction sees it."""
        topic_id = self.state.ids.get(("t", name))
        return None if topic_id is None else self.state.topics[topic_id]

    def group(self, name: str) -> Group | None:
        """A group by name. First moves it from purged topics (purge.py) and past dropped chunks (floors.py)."""
        group_id = self.state.ids.get(("g", name))
        if group_id is not None and (self.state.moving or self.state.lagging):
            self._follow(GroupId(group_id))
        return None if group_id is None else self.state.groups[group_id]

    def _follow(self, group_id: GroupId) -> None:
        """Moves a group from each purged topic that it has not been moved from yet, and past dropped chunks."""
        state = self.state
        for topic_id, old_id in list(state.moving.items()):
            if (group_id, old_id) in state.stat and (group_id, topic_id) not in state.stat:
                self.rebind(group_id, state.topics[topic_id])
                state.topic_groups[topic_id] = (*state.topic_groups.get(topic_id, ()), group_id)
        for topic_id in list(state.lagging):
            for queue in range(state.topics[topic_id].queues if (group_id, topic_id) in state.stat else 0):
                where, least = (group_id, topic_id, queue), state.queue_min.get((topic_id, queue), 0)
                if state.poff.get(where, 0) < least:
                    self.pass_dropped(where, least, list(marks.redriven(self.kv, topic_id, queue, 0, least)))

    def rebind(self, group_id: GroupId, new: Topic) -> None:
        """Moves a group from a purged topic to where the topic began again. The caller adds it to `topic_groups`."""
        where = GroupId(group_id), new.topic_id
        ends = [self.state.queue_min.get((new.topic_id, queue), 0) for queue in range(new.queues)]
        for queue, end in enumerate(ends):
            self.pass_to((*where, queue), end)
        self.state.move_subscription((group_id, new.moving_from), where, sum(ends))

    def wake(self, group_id: int | None, topic_id: int) -> None:
        """After the commit one parked Pop of the group (None: of each group) on the topic is tried again."""
        topic = self.state.topics.get(topic_id)
        group = self.state.groups.get(group_id) if group_id is not None else None
        if topic is None or (group_id is not None and group is None):
            return
        name = group.name if group else None
        if topic.parent_id:
            self.woken |= self.state.watches.judge(name, topic.name, topic.lite_topic)
        else:
            self.woken.add((name, topic.name))
            self.woken |= self.state.watches.wake_keys(name, topic.name)

    def arrive(self, topic_id: int, queue: int | None) -> None:
        """After the commit the requests that wait for new messages in a queue (None: in each) are tried again."""
        topic = self.state.topics.get(topic_id)
        if topic is not None and not topic.parent_id:
            self.arrived.add((None if queue is None else str(queue), topic.name))

    def tell(self, event: Event) -> None:
        """Reports an event to operators after the commit."""
        self.events.append(event)

    def count(self, where: GroupTopic, **changes: int) -> None:
        """Adds to counters of one group in one topic; for a lite topic also to those of its parent, except `start`."""
        stat = self.state.stat[where]
        self.state.stat[where] = _added(stat, changes)
        above = (where[0], self.state.parent_of(where[1]))
        if above[1] and above in self.state.stat:
            changes.pop("start", None)
            self.count(above, **changes)

    def count_topic(self, topic_id: int, **changes: int) -> TopicId:
        """Adds to counters of a topic; for a lite topic also to those of its parent. Returns that one's id, or 0."""
        stat = self.state.topic_stat.get(topic_id, TopicStat())
        self.state.topic_stat[topic_id] = _added(stat, changes)
        if parent := self.state.parent_of(topic_id):
            self.count_topic(parent, **changes)
        elif ("delayed" in changes or "half" in changes) and topic_id in self.state.topics:
            unseen.add(self.state.unseen, changes)
        return parent

    def drop_topic(self, topic: Topic) -> None:
        """Removes the row of a topic; its messages and positions are removed in pieces (purge.py).

        Each of its queues gets an end, from which `State.forget_topic` knows them.
        """
        unseen.add(self.state.unseen, unseen.counts(self.state.topic_stat, topic), -1)
        for where in ((topic.topic_id, queue) for queue in range(topic.queues)):
            if where not in self.state.queue_max:
                self.state.queue_max[where] = 0
        self.state.set_moving(topic.topic_id, TopicId(0))
        self.state.set_lagging(topic.topic_id, False)
        self.state.topics.pop(topic.topic_id)

    def count_lites(self, parent_id: int, topics: int, messages: int) -> None:
        """Adds to the sums of a topic over its lite topics; does nothing for parent 0."""
        if parent_id:
            sums = self.state.lites.get(parent_id, Lites())
            self.state.lites[parent_id] = Lites(sums.topics + topics, sums.messages + messages)

    def count_unread(self, where: GroupTopic, count: int) -> None:
        """Adds to a group's unread messages in the parent of a lite topic; does nothing for other topics."""
        if parent := self.state.parent_of(where[1]):
            above = (where[0], parent)
            self.state.unread[above] = self.state.unread.get(above, 0) + count

    def hold(self, ck: CheckPoint, bits: int, sign: int) -> None:
        """Members of `ck` come under its lease (sign 1) or leave it (sign -1): updates the numbers of leased messages.

        These are held, clients, owned, in_flight, locks and pins. No other place updates them, so they agree.
        """
        state, where, moved = self.state, (ck.group_id, ck.topic_id), sign * bits.bit_count()
        state.held[where] = shifted(state.held.get(where, HeldNumbers()), ck.kind, ck.owner_id, moved)
        if parent := state.parent_of(ck.topic_id):
            above = (ck.group_id, parent)
            state.held[above] = shifted(state.held.get(above, HeldNumbers()), ck.kind, ck.owner_id, moved)
        if ck.kind != BACKOFF:
            self._count_client((ck.group_id, ck.client), moved)
        if ck.owner_id:
            state.owned[ck.owner_id] = state.owned.get(ck.owner_id, 0) + moved
        elif ck.kind != BACKOFF:
            group = state.groups.get(ck.group_id)
            limit = group.in_flight_max if group else IN_FLIGHT_MAX
            for queue, count in queue_counts(ck, bits):
                before = state.in_flight.get((*where, queue), 0)
                state.in_flight[(*where, queue)] = before + sign * count
                if sign < 0 and before >= limit:
                    self.wake(*where)
        if ck.message_groups:
            self._lock(ck, bits, sign)
        self._hold_chunks(ck, bits, sign, parent)

    def _hold_chunks(self, ck: CheckPoint, bits: int, sign: int, parent: TopicId) -> None:
        """Updates the numbers of leased messages by chunk, for retention and the age of the oldest lease."""
        state, where = self.state, (ck.group_id, ck.topic_id)
        for chunk, count in ck.pinned(bits).items():
            state.searched.discard(chunk)
            left = state.pins.get(chunk, 0) + sign * count
            if left:
                state.pins[chunk] = left
            else:  # entries of zero would add up
                state.pins.pop(chunk)
            oldest_leased.shift(state, where, chunk, sign * count)
            if parent:
                oldest_leased.shift(state, (ck.group_id, parent), chunk, sign * count)

    def _count_client(self, key: tuple[int, str], moved: int) -> None:
        """Updates the number of messages leased to one client of a group; drops an entry of zero, as clients leave."""
        if left := self.state.clients.get(key, 0) + moved:
            self.state.clients[key] = left
        else:
            self.state.clients.pop(key)

    def _lock(self, ck: CheckPoint, bits: int, sign: int) -> None:
        """FIFO: a message group is locked while any member of it is under a lease; once unlocked it may be ready."""
        group_id, topic_id, locks, waiting = ck.group_id, ck.topic_id, self.state.locks, self.state.waiting
        for message_group, count in locked_counts(ck, bits).items():
            key = (group_id, topic_id, message_group)
            before = locks.get(key)
            left = sign * count + (before[0] if before else 0)
            if left:
                locks[key] = (left, ck.owner_id, ck.part)
            else:
                locks.pop(key)
            if (key in waiting and self.state.ready_groups.judge(key)) or self.state.parent_of(topic_id):
                self.wake(group_id, topic_id)

    def pin(self, chunk: int, count: int) -> None:
        """Adds to the number of retry and waiting entries that point into a chunk; a pinned chunk is not dropped."""
        key = U64.pack(chunk)
        self.state.searched.discard(chunk)
        raw = self.kv.get("pin", key)
        left = (U32.unpack(raw)[0] if raw is not None else 0) + count
        if left:
            self.kv.put("pin", key, U32.pack(left))
        elif raw is not None:
            self.kv.delete("pin", key)

    def pass_to(self, where: GroupQueue, offset: int) -> None:
        """Sets the offset of a group in a queue. If the group moves back, or is new, takes back marks beyond it, and
        lowers the floor of the queue (retention/floors.py).
        """
        known, before = where in self.state.poff, self.state.poff.get(where, 0)
        if offset == before and known:
            return
        self.state.poff[where] = offset
        self.state.passed[where[:2]] = self.state.passed.get(where[:2], 0) + offset - before
        self.count_unread(where[:2], before - offset)
        if offset < before or not known:
            marks.take_back(self.kv, where[1], where[2], offset)
            self.state.climbs.pop(where[1])
            if offset < self.state.floors.get(where[1:], 0):
                self.state.floors[where[1:]] = offset

    def pass_dropped(self, where: GroupQueue, least: int, gone: Sequence[int]) -> None:
        """Moves a group to an offset if it is before it, and counts what it loses; `gone`: redriven dead letters."""
        state, offset = self.state, self.state.poff.get(where, 0)
        if offset >= least or where[:2] not in state.stat:
            return
        self.pass_to(where, least)
        skipped = bisect.bisect_left(gone, least) - bisect.bisect_left(gone, offset)
        lost = least - offset - skipped
        self.count(where[:2], dropped=lost, start=skipped)
        group, topic = state.groups.get(where[0]), state.topics.get(where[1])
        if group is not None and topic is not None and lost:
            self.tell(events.dropped(group.name, topic.name, where[2], offset, least, lost))

    def loosen(self, owner_id: int, count: int) -> None:
        """Adds to the number of an owner's members in the retry topic, tied to their CheckPoint."""
        self.state.loose[owner_id] = self.state.loose.get(owner_id, 0) + count

    def new_checkpoint(
        self,
        where: GroupTopic,
        kind: int,
        members: int,
        runs: Iterable[Run],
        chunks: Iterable[tuple[int, int]],
        **more: Any,
    ) -> CheckPoint:
        """Makes a CheckPoint with an id and a nonce of its own; `new_lease` stores it. `more`: its other fields."""
        return CheckPoint(
            ck_id=self.next("ck_id"),
            group_id=where[0],
            topic_id=where[1],
            kind=kind,
            nonce=nonce(),
            popped_ms=self.now_ms,
            runs=tuple(runs),
            members=members,
            chunks=tuple(chunks),
            **more,
        )

    def new_lease(self, ck: CheckPoint, due_ms: int) -> None:
        """Stores a CheckPoint, with all of its members under one lease."""
        bits = ck.all_bits
        self.state.ck[ck.ck_id] = ck
        self.set_lease(ck, 0, Lease(due_ms, bits))
        self.hold(ck, bits, 1)

    def set_lease(self, ck: CheckPoint, sub: int, lease: Lease | None) -> None:
        """Puts or removes one part of a CheckPoint's lease; removing the last part removes the CheckPoint.

        `subs` counts the parts if there are several, so the check for the last part needs no scan. The whole (sub 0) is
        put first, when its CheckPoint is created; later parts are split off from others.
        """
        state, key = self.state, (ck.ck_id, sub)
        had = key in state.leases
        if (blocked := state.dead_blocked.get(key)) is not None:
            state.note_dead_blocked(ck, sub, blocked & lease.undone if lease and lease.due_ms <= self.now_ms else 0)
        if lease is not None:
            state.leases[key] = lease
            if sub and not had:
                state.subs[ck.ck_id] = state.subs.get(ck.ck_id, 1) + 1
        elif had:
            state.leases.pop(key)
            left = state.subs.get(ck.ck_id, 1) - 1
            if left > 1:
                state.subs[ck.ck_id] = left
            elif left:
                state.subs.pop(ck.ck_id)
            else:
                self._drop(ck)

    def _drop(self, ck: CheckPoint) -> None:
        self.state.ck.pop(ck.ck_id)
        if ck.session:
            session_ids.remove(self.state, ck.client, ck.ck_id)
        if not ck.attempt_id:
            return
        tried = attempt_key(ck.group_id, ck.topic_id, ck.client, ck.attempt_id)
        if self.state.attempts.get(tried) == ck.ck_id:
            self.state.attempts.pop(tried)
        if parent := self.state.parent_of(ck.topic_id):
            self._drop_attempt(attempt_key(ck.group_id, parent, ck.client, ck.attempt_id), ck.ck_id)

    def _drop_attempt(self, tried: int, ck_id: int) -> None:
        """Removes a CheckPoint from its attempt: a Pop on lite topics has one for each of them."""
        left = tuple(each for each in self.state.lite_attempts.get(tried, ()) if each != ck_id)
        if left:
            self.state.lite_attempts[tried] = left
        else:
            self.state.lite_attempts.pop(tried)

    def flush(self) -> None:
        """Writes the changes of the tables, once, right before the commit.

        The order is that of the tables in State: CheckPoints before their leases, which need their number of members.
        """
        for table in changed(self.state.transactional):
            table.flush(self.kv)

    def merge(self) -> None:
        """Makes the committed changes visible to later transactions."""
        for table in changed(self.state.transactional):
            table.merge()
        self.state.read_through(None)
        self.state.undo.keep()

    def abort(self) -> None:
        """Drops the transaction and all layers, and undoes the changes outside the tables."""
        self.state.read_through(None)
        self.kv.abort()
        self.state.undo.take_back()
        for table in self.state.transactional:
            table.drop()


def _added(counters: N, changes: dict[str, int]) -> N:
    """Adds to some of the numbers; a third of the cost of `_replace`."""
    names, numbers = counters._fields, list(counters)
    for name, change in changes.items():
        numbers[names.index(name)] += change
    return counters.__class__(*numbers)
