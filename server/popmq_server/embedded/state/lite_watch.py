"""Watches: the lite topics that each client reads, and which of them have deliverable messages.

    watch   group, topic, client → names, until when                      SyncLiteSubscription, or the names of a Pop
    ready   of each watch: its lite topics with deliverable messages, longest ready first

    Send ─▶ a lite topic has a message ─┐
    Ack  ─▶ its lock is released ───────┼─▶ judge ─▶ updates the watches that have it, returns the keys to wake
    revive, release ─▶ it waits again ──┘

A Pop visits only the ready lite topics, not all 2,000 names. Among these may be one that has nothing deliverable any
more; the Pop that finds it removes it. Every lite topic with deliverable messages is among them.

A watch with the name `*` has all lite topics of its topic. Its Pops judge those that existed before it, in pieces
(lite_pop.py). It does not keep an idle lite topic from being removed, as a name does.

Watches are in memory only. A watch ends if its client does not refresh it, and a restart drops all: clients send
their set every half minute. An aborted commit undoes all changes (table.py:Undo): a command that runs again must find
the names as they were, to see which of them are new to the group. Keys are names, not ids: watches remain when a
topic is purged or created again.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable

from popmq_server.embedded.state.ready_groups import Ordered
from popmq_server.embedded.store.keys import hash16
from popmq_server.embedded.store.table import Undo
from popmq_server.errors import Refused
from popmq_server.values.ids import TopicId
from popmq_server.values.message import ALL_LITE_TOPICS

#: Identifies a watch: group, topic and client.
Key = tuple[str, str, str]
#: The key under which Pops are parked (long_poll.py): group, and a topic name or the `wake_key` of a watch.
WakeKey = tuple[str | None, str]

#: Ready lite topics that one Pop looks at: as many as a client may name.
LOOKS_MAX = 2300
#: Life of a watch without a refresh. Clients refresh theirs every 30 s.
WATCH_MS = 75_000
#: Limit of the names in all watches together, to bound memory.
NAMES_MAX = 2_000_000


def named(names: Iterable[str]) -> str:
    """The client key of a Pop that names its lite topics: all Pops with the same names share one watch."""
    return "\1" + hash16(*sorted(names)).hex()


def wake_key(topic: str, client: str) -> str:
    """The second part of the WakeKey for Pops of a watch; it cannot equal the name of a topic."""
    return f"{topic}\0{client}"


def topic_of(key: str) -> str:
    """The topic in a `wake_key`."""
    return key.partition("\0")[0]


class Watch:
    """One set of names. `ready` None: must be built from the tables. `evicted`: names that another client took over.

    `unseen`: with ALL_LITE_TOPICS, the first of the lite topics that have not been judged yet; None: all have been.
    Only `Watches` changes it.
    """

    __slots__ = ("evicted", "names", "ready", "unseen", "until_ms")

    def __init__(self, ready: Ordered[str]) -> None:
        self.names: dict[str, None] = {}
        self.ready: Ordered[str] | None = ready
        self.until_ms = 0
        self.unseen: str | None = None
        self.evicted: frozenset[str] = frozenset()


class Watches:
    """All watches, by key and by name. For the writer thread."""

    def __init__(
        self, topic_id: Callable[[str, str], TopicId | None], deliverable: Callable[[str, TopicId], bool], undo: Undo
    ) -> None:
        """`topic_id`: (parent name, lite topic) → id. `deliverable`: (group, topic id) → whether a Pop would get a
        message.
        """
        self._topic_id = topic_id
        self._deliverable = deliverable
        self._undo = undo
        #: Watches in the order of their last refresh. An abort does not restore the order.
        self._watches = OrderedDict[Key, Watch]()
        self._by_name: dict[tuple[str, str], dict[Key, None]] = {}
        self._by_topic: dict[str, dict[Key, None]] = {}
        self._by_client: dict[str, dict[Key, None]] = {}
        #: Names in all watches.
        self.names = 0

    def get(self, key: Key, now_ms: int) -> Watch | None:
        """A watch that was refreshed within WATCH_MS, or None."""
        watch = self._watches.get(key)
        return watch if watch is not None and watch.until_ms > now_ms else None

    def refresh(self, key: Key, now_ms: int) -> Watch:
        """Returns a watch, created if there is none, and extends it to WATCH_MS from now."""
        watch = self.get(key, now_ms)
        if watch is None:
            self.drop(key)
            watch = Watch(Ordered(self._undo))
            self._put(key, watch)
            self._undo.note(self._take, key)
        self._set(watch, "until_ms", now_ms + WATCH_MS)
        self._watches.move_to_end(key)
        return watch

    def _set(self, watch: Watch, field: str, value: object) -> None:
        self._undo.save(watch, field)
        setattr(watch, field, value)

    def _put(self, key: Key, watch: Watch) -> None:
        self._watches[key] = watch
        self._by_topic.setdefault(key[1], {})[key] = None
        self._by_client.setdefault(key[2], {})[key] = None

    def _take(self, key: Key) -> None:
        del self._watches[key]
        _leave(self._by_topic, key[1], key)
        _leave(self._by_client, key[2], key)

    def add(self, key: Key, names: Iterable[str]) -> bool:
        """Adds names to a watch; returns whether one of the new ones has deliverable messages."""
        watch, woken = self._watches[key], False
        for name in names:
            if name not in watch.names:
                self._put_name(key, watch, name)
                self._undo.note(self._take_name, key, watch, name)
                if name == ALL_LITE_TOPICS:
                    self._set(watch, "unseen", "")
                    woken = True
                else:
                    woken |= self._judge(key, watch, name)
        return woken

    def _put_name(self, key: Key, watch: Watch, name: str) -> None:
        watch.names[name] = None
        self._by_name.setdefault((key[1], name), {})[key] = None
        self.names += 1

    def _take_name(self, key: Key, watch: Watch, name: str) -> None:
        del watch.names[name]
        _leave(self._by_name, (key[1], name), key)
        self.names -= 1

    def remove(self, key: Key, names: Iterable[str]) -> None:
        """Removes names from a watch."""
        watch = self._watches.get(key)
        for name in list(names) if watch is not None else ():
            if watch is not None and name in watch.names:
                if watch.ready is not None:
                    watch.ready.set_ready(name, False)
                self._take_name(key, watch, name)
                self._undo.note(self._put_name, key, watch, name)
                if name == ALL_LITE_TOPICS:
                    self._set(watch, "ready", None)
                    self._set(watch, "unseen", None)

    def evict(self, key: Key, names: Iterable[str]) -> None:
        """Sets the names that another client took over, in place of any earlier ones."""
        if (watch := self._watches.get(key)) is not None:
            self._set(watch, "evicted", frozenset(names))

    def drop(self, key: Key) -> None:
        """Removes a watch and its names."""
        watch = self._watches.get(key)
        if watch is not None:
            self.remove(key, list(watch.names))
            self._take(key)
            self._undo.note(self._put, key, watch)

    def drop_client(self, client: str) -> None:
        """Removes all watches of a client."""
        for key in list(self._by_client.get(client, ())):
            self.drop(key)

    def check_room(self, fresh: int, now_ms: int) -> None:
        """Raises Refused if `fresh` more names would exceed NAMES_MAX."""
        if self.names + fresh > NAMES_MAX:
            self.expire(now_ms, fresh)
        if self.names + fresh > NAMES_MAX:
            raise Refused(
                "LITE_SUBSCRIPTION_QUOTA",
                f"the clients of this broker read {self.names} lite topics in all, at most {NAMES_MAX} are allowed",
                field="lite_topics",
                action="name fewer of them; those of a disconnected client are released after a minute",
            )

    def expire(self, now_ms: int, names_max: int) -> bool:
        """Drops watches that were not refreshed in time, until they have this many names; returns whether there are
        more.
        """
        while (key := next(iter(self._watches), None)) is not None and self._watches[key].until_ms <= now_ms:
            if names_max <= 0:
                return True
            names_max -= 1 + len(self._watches[key].names)
            self.drop(key)
        return False

    def watchers(self, topic: str, lite_topic: str, now_ms: int) -> list[Key]:
        """The watches with this name, of all groups. Those with ALL_LITE_TOPICS have that name only."""
        found = self._by_name.get((topic, lite_topic), ())
        return [key for key in found if self._watches[key].until_ms > now_ms]

    def wake_keys(self, group: str | None, topic: str) -> set[WakeKey]:
        """The keys of all parked Pops on lite topics of a topic, to wake them after a change of the topic."""
        if topic not in self._by_topic:
            return set()
        found = self._by_topic[topic]
        return {(key[0], wake_key(*key[1:])) for key in found if group in (None, key[0])}

    def judge(self, group: str | None, topic: str, lite_topic: str) -> set[WakeKey]:
        """Updates the watches after a change of a lite topic; returns the keys whose Pops can now get a message."""
        woken = set[WakeKey]()
        named, of_all = self._by_name.get((topic, lite_topic), ()), self._by_name.get((topic, ALL_LITE_TOPICS), ())
        for key in itertools.chain(named, of_all):
            if group in (None, key[0]) and self._judge(key, self._watches[key], lite_topic):
                woken.add((key[0], wake_key(*key[1:])))
        return woken

    def _judge(self, key: Key, watch: Watch, name: str) -> bool:
        """Adds a name as the last ready one, or removes it; returns whether it has deliverable messages."""
        topic_id = self._topic_id(key[1], name)
        has = topic_id is not None and self._deliverable(key[0], topic_id)
        if watch.ready is not None:
            watch.ready.set_ready(name, has)
        return has

    def see(self, key: Key, names: Iterable[str], unseen: str | None) -> None:
        """Judges lite topics that existed before a watch of all. `unseen`: from which one on the others follow."""
        watch = self._watches.get(key)
        if watch is not None:
            for name in names:
                self._judge(key, watch, name)
            self._set(watch, "unseen", unseen)

    def ready(self, key: Key) -> list[str]:
        """The names of a watch that have been ready for longest, at most LOOKS_MAX."""
        watch = self._watches.get(key)
        return [] if watch is None else list(itertools.islice(self._ready_of(key, watch), LOOKS_MAX))

    def ready_count(self, key: Key) -> int:
        """Number of ready names of a watch."""
        watch = self._watches.get(key)
        return 0 if watch is None else len(self._ready_of(key, watch))

    def _ready_of(self, key: Key, watch: Watch) -> Ordered[str]:
        if watch.ready is None:
            self._set(watch, "ready", Ordered[str](self._undo))
            for name in watch.names:
                if name == ALL_LITE_TOPICS:
                    self._set(watch, "unseen", "")
                else:
                    self._judge(key, watch, name)
        assert watch.ready is not None
        return watch.ready

    def reset(self, group: str) -> None:
        """Discards what was ready for a deleted group: a new group of that name has read nothing."""
        for key, watch in self._watches.items():
            if key[0] == group:
                self._set(watch, "ready", None)


def _leave(index: dict, value: object, key: Key) -> None:  # type: ignore[type-arg]  # each index has keys of its own type
    """Removes a key from an index, and its entry once that is empty."""
    place = index.get(value)
    if place is not None:
        place.pop(key, None)
        if not place:
            del index[value]
