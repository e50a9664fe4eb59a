"""The unit of work: the transaction of one commit batch.

It has one LMDB transaction, the layers of all tables, the room that is left, and the waiters to wake and the events to
report after the commit. Handlers (core.py) take it as their first argument; each table is written by the module that
owns it (tests/test_table_owners.py). `flush` writes the changes of the tables, `merge` makes them visible, `abort`
drops them.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.state.events import Event
from popmq_server.embedded.state.space import UNLIMITED
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.store.table import changed, merge_all
from popmq_server.errors import Refused
from popmq_server.values.ids import ENTITY_MAX
from popmq_server.values.records import (
    Counters,
    Stat,
    Topic,
    TopicStat,
)

N = TypeVar("N", Counters, Stat, TopicStat)
T = TypeVar("T")


class Scratch(Generic[T]):
    """A value that its module keeps as long as a transaction runs: made when a transaction first asks for it."""

    def __init__(self, make: "Callable[[Tx], T]") -> None:
        self._make = make

    def of(self, tx: "Tx") -> T:
        if self not in tx.scratch:
            tx.scratch[self] = self._make(tx)
        found: T = tx.scratch[self]
        return found


class Tx:
    """The transaction of one commit batch. Only the changes that `merge` keeps outlive it."""

    __slots__ = (
        "arrived",
        "events",
        "kv",
        "now_ms",
        "resulted",
        "room",
        "scratch",
        "served",
        "state",
        "wall_ms",
        "woken",
    )

    def __init__(self, state: State, store: Store, now_ms: int, wall_ms: int | None = None) -> None:
        """Begins an LMDB transaction; `now_ms` is the time of everything in this commit.

        `wall_ms`: the machine's clock, for delivery times given as wall time; None: the same as `now_ms`.
        """
        self.state = state
        state.ck.kv = state.leases.kv = self.kv = store.begin_batch()
        self.now_ms = now_ms
        #: Bytes that may still be written: space.py.
        self.room = UNLIMITED
        self.wall_ms = now_ms if wall_ms is None else wall_ms
        #: The values that modules keep as long as the transaction runs: Scratch.
        self.scratch: dict[Scratch[Any], Any] = {}
        #: (group name or None for all groups, topic name or lite_watch.wake_key) that Pops have to look at again.
        self.woken: set[tuple[str | None, str]] = set()
        #: (group name, topic name) of Pops that took all there was, while nothing has come behind them: wakes of all
        #: groups are not for these. None: of none.
        self.served: set[tuple[str, str]] | None = None
        #: (queue as text or None for all queues, topic name): after the commit the Pulls parked there look again.
        self.arrived: set[tuple[str | None, str]] = set()
        #: (group, message id) of results: after the commit those who wait for them look again.
        self.resulted: set[tuple[str, str]] | None = None
        #: Events to report to operators after the commit: events.py.
        self.events: list[Event] = []

    @property
    def dirty(self) -> int:
        """A number that grows with every change that an abort would undo."""
        return self.kv.writes + self.state.tables.changes.count + self.state.undo.changes

    def next(self, field: str, count: int = 1) -> int:
        """Takes `count` numbers of a counter; returns the first.

        Numbers are never reused, not even after a removal: a handle of an old CheckPoint must not fit a new one.
        """
        counters = self.state.counters[""]
        first: int = getattr(counters, field)
        if count < 0:
            broken("numbers_ascend", field=field, count=count)
        self.state.counters[""] = added(counters, {field: count})
        return first

    def new_id(self) -> int:
        """An id for a topic, group, lite topic or owner. Raises Refused after the last one: keys have 32 bits."""
        entity_id = self.next("entity")
        if entity_id > ENTITY_MAX:
            raise Refused(
                "STORAGE_FULL",
                f"the store has given all its {ENTITY_MAX:,} ids to topics, groups, lite topics and owners",
                action="move the topics to a broker on a new folder with `popmq export` and `popmq import`",
            )
        return entity_id

    def save_time(self) -> None:
        """Stores the time of this commit: a broker that starts again goes on from there."""
        counters = self.state.counters[""]
        self.state.counters[""] = counters._replace(saved_ms=max(counters.saved_ms, self.now_ms))

    def wake(self, group_id: int | None, topic_id: int) -> None:
        """After the commit one parked Pop of the group (None: of each group) on the topic is tried again."""
        topic = self.state.topics.get(topic_id)
        group = self.state.groups.get(group_id) if group_id is not None else None
        if topic is None or (group_id is not None and group is None):
            return
        name = group.name if group else None
        self.served = None
        if topic.parent_id:
            self.woken |= self.state.watches.judge(name, topic.name, topic.lite_topic)
        else:
            self.woken.add((name, topic.name))
            self.woken |= self.state.watches.wake_keys(name, topic.name)

    def came(self, topic: Topic, queue: int) -> None:
        """`wake` and `arrive` for new messages in a queue of a topic that is no lite topic."""
        name = topic.name
        self.served = None
        self.woken.add((None, name))
        self.woken |= self.state.watches.wake_keys(None, name)
        self.arrived.add((str(queue), name))

    def serve(self, group: str, topic: str) -> None:
        """A Pop of all queues took all there is: what came before it wakes nobody else of the group."""
        if self.served is None:
            self.served = set()
        self.served.add((group, topic))

    def arrive(self, topic_id: int, queue: int | None) -> None:
        """After the commit the requests that wait for new messages in a queue (None: in each) are tried again."""
        topic = self.state.topics.get(topic_id)
        if topic is not None and not topic.parent_id:
            self.arrived.add((None if queue is None else str(queue), topic.name))

    def tell(self, event: Event) -> None:
        """Reports an event to operators after the commit."""
        self.events.append(event)

    def flush(self) -> None:
        """Writes the changes of the tables, once, right before the commit.

        The order is that of the tables in State: CheckPoints before their leases, which need their number of members.
        """
        for table in changed(self.state.flushed):
            table.flush(self.kv)

    def merge(self) -> None:
        """Makes the committed changes visible to later transactions."""
        state = self.state
        merge_all(state.transactional)
        state.ck.kv = state.leases.kv = None

    def abort(self) -> None:
        """Drops the transaction, and all that it changed in memory."""
        self.state.read_through(None)
        self.kv.abort()
        for table in changed(self.state.transactional):
            table.drop()


def added(counters: N, changes: dict[str, int]) -> N:
    """Adds changes to some of the numbers, at a third of the cost of `_replace`."""
    names, numbers = counters._fields, list(counters)
    for name, change in changes.items():
        numbers[names.index(name)] += change
    return counters.__class__(*numbers)
