"""The broker's state: tables over the store.

`State` is a write-through image of the small tables of the store (positions, counters, owners); the large ones (log,
consume queue, retry entries) are read from LMDB when needed. CheckPoints and leases have tables like the others, but
their committed entries stay in the store (checkpoints.py). The module that owns a table changes it, in a transaction
(tx.py).

At start one scan of the small tables, ck and due, and the two ends of each queue rebuild everything; history is never
read. Tables that the store does not have follow from others.

Each table is declared once (all_tables.py), with its rows and the roles of its key.

Derived values are tables too, so an aborted commit drops their changes with the others. `check.differences` compares
the tables of a running broker with those of a fresh start.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from popmq_server.embedded.state.all_tables import AllTables, lite_hash
from popmq_server.embedded.state.lite_watch import Watches
from popmq_server.embedded.state.ready_groups import ReadyGroups, forget_stopped
from popmq_server.embedded.store.checkpoint import CheckPoint, Lease
from popmq_server.embedded.store.keys import (
    NEVER,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.table import Table, Undo
from popmq_server.embedded.store.tables import (
    GROUP,
    MESSAGE_GROUP,
    OWNER,
    QUEUE,
    TOPIC,
)
from popmq_server.values.ids import (
    GroupId,
    GroupTopic,
    TopicId,
)
from popmq_server.values.records import (
    RETRY_QUEUE,
    Counters,
    Schedule,
    SweepWork,
    Topic,
)

_NO_SWEEP = SweepWork()


def first_occurrence(schedules: Iterable[Schedule]) -> int:
    """The earliest next occurrence of all schedules; 0: there is none."""
    return min((one.next_ms for one in schedules if one.next_ms), default=0)


class State(AllTables):
    """All tables, and what follows from them."""

    def __init__(self) -> None:
        super().__init__()
        #: How to undo changes of what is no table.
        self.undo = Undo()
        #: The tables in the order of their flush; and all that a transaction changes in memory.
        self.flushed = self.tables.with_rows()
        self.transactional: list[Table[Any, Any] | Undo] = [self.undo, *self.tables.with_layers()]
        self.ready_groups = ReadyGroups(self.waiting, self.locks, self.stopped, self.undo)
        self.watches = Watches(self.watched_id, self.deliverable, self.undo)
        #: The earliest next occurrence of all schedules; 0: there is none. Not a table, since every commit reads it.
        self.schedule_due = 0
        #: The latest `created_ms` of a topic that this process has deleted: see topic_lifecycle.py.
        self.deleted_ms = 0
        #: When this process began to serve the store.
        self.started_ms = 0
        #: Index blocks written since the last search for blocks to merge (index.py).
        self.fresh_blocks = 0
        #: Results stored since the last round over their places (results/places.py).
        self.fresh_results = 0
        #: Names of topics with a live producer that can answer check backs. A Listen command sets it, on the writer
        #: thread (check_back.py).
        self.listened: frozenset[str] = frozenset()
        #: Chunks whose pointers are being searched, without a new lease or pin since: kept.py.
        self.searched: set[int] = set()
        self.counters.load("", Counters())

    def forget_topic(self, topic_id: TopicId) -> None:
        """Removes a deleted topic from all tables. Its leases and subscriptions must have ended."""
        queues = itertools.takewhile(lambda queue: (topic_id, queue) in self.queue_max, itertools.count())
        self.tables.forget_keys({TOPIC: (topic_id,), QUEUE: tuple(queues)}, TOPIC)

    def forget_lite_topic(self, topic_id: TopicId) -> None:
        """Removes a lite topic from all tables, by key: a walk for each of 100,000 would visit everything each time."""
        topic, groups = self.topics.get(topic_id), self.topic_groups.get(topic_id, ())
        for group_id in groups:
            self.ready_groups.forget((group_id, topic_id))
        parts = {
            GROUP: groups,
            TOPIC: (topic_id,),
            QUEUE: (0, RETRY_QUEUE),
            MESSAGE_GROUP: () if topic is None else (lite_hash(topic.lite_topic),),
        }
        self.tables.forget_keys(parts, TOPIC)

    def forget_subscription(self, where: GroupTopic, queues: Iterable[int]) -> None:
        """Removes the entries of a group in a topic from all tables; `queues`: those that the group has entries of.

        Its leases, tokens and waiting entries must have ended.
        """
        forget_stopped(self, where)
        self.tables.forget_keys({GROUP: where[:1], TOPIC: where[1:], QUEUE: queues}, GROUP, TOPIC)
        self.ready_groups.forget(where)

    def forget_group(self, group_id: GroupId) -> None:
        """Removes a deleted group from all tables. Its leases, subscriptions and owners must have ended."""
        self.tables.forget_keys({GROUP: (group_id,)}, GROUP)

    def forget_owner(self, owner_id: int) -> None:
        """Removes a dropped owner from all tables. Its tokens must have been removed, or be removed with its group."""
        self.tables.forget_keys({OWNER: (owner_id,)}, OWNER)

    def named_topics(self) -> Iterator[Topic]:
        """All topics except lite topics, which may be many."""
        return (self.topics[topic_id] for (kind, _), topic_id in self.ids.items() if kind == "t")

    def alive(self, topic_id: int) -> bool:
        """Whether a topic exists, and the parent of a lite topic too."""
        topic = self.topics.get(topic_id)
        return topic is not None and (not topic.parent_id or topic.parent_id in self.topics)

    def watched_id(self, topic_name: str, lite_topic: str) -> TopicId | None:
        """The id of a lite topic by names; None if it does not exist."""
        return self.lite_ids.get((TopicId(self.ids.get(("t", topic_name), 0)), lite_topic))

    def deliverable(self, group_name: str, topic_id: TopicId) -> bool:
        """Whether a Pop of the group would get a message from a lite topic now."""
        topic, group_id = self.topics.get(topic_id), self.ids.get(("g", group_name))
        if topic is None or group_id is None:
            return False
        where = (GroupId(group_id), topic_id)
        key = (*where, lite_hash(topic.lite_topic))
        if key in self.locks or key in self.stopped or self.sweeps.get(where, _NO_SWEEP).hides:
            return False
        return key in self.waiting or self.total.get(topic_id, 0) > self.passed.get(where, 0)

    def read_through(self, kv: Transaction | None) -> None:
        """Sets the transaction through which committed CheckPoints and leases are read; None: no transaction."""
        self.ck.kv = self.leases.kv = kv

    def torn(self, ck_id: int, member: int) -> bool:
        """Whether an owner has lost a member of a CheckPoint for good: entries tied to it are then free."""
        part = self.leases.get((ck_id, 0))
        return part is not None and bool(part.torn >> member & 1)

    def due_ms_of(self, ck: CheckPoint, part: Lease) -> int:
        """The deadline of a lease; for an owner's CheckPoint that of its owner, and 0 when that was removed."""
        if part.due_ms != NEVER:
            return part.due_ms
        key = self.owner_keys.get(ck.owner_id)
        return self.owners[key].lease_until_ms if key else 0
