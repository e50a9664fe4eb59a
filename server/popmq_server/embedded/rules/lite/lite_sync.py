"""Subscriptions to lite topics: a client reports its set of names, which stays in memory (lite_watch.py).

    ADD      more names; `start` sets where the group begins in them      a client that subscribes
    REPLACE  exactly these names; also keeps the subscription alive       each 30 s
    REMOVE   fewer names
    DROP     the client has left

A group begins in a lite topic where its settings say, usually at the first message. If a lite topic is created later,
all groups whose clients watch its name begin at its first message. A client may subscribe to names that do not exist,
and to all lite topics by the name `*`.

If lite topics are exclusive (`lite_exclusive`), a name belongs to the client that added it last. The broker notifies
the others and remembers it: only an ADD gets a name back, a REPLACE does not. Nor does a REPLACE take a name of another
client.
"""

from collections.abc import Iterable

from popmq_server.contract.commands import LiteSynced, SyncLite
from popmq_server.embedded.rules.delivery.subscription import bind, offset_at
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.rules.pulling import offsets
from popmq_server.embedded.state.lite_watch import Key, Watch, wake_key
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused, invalid
from popmq_server.values.message import ALL_LITE_TOPICS, check_lite_topic
from popmq_server.values.records import Group, Topic

#: Names per client: the documented limit, and the tolerance beyond it.
NAMES_PER_CLIENT, SLACK = 2000, 300


def sync(tx: Tx, command: SyncLite) -> LiteSynced:
    """Changes the set of a client. Refuses before it changes anything."""
    group, parent = lite_topics.resolve(tx, command.topic, command.group)
    key = (group.name, parent.name, command.client)
    names = dict.fromkeys(name if name == ALL_LITE_TOPICS else check_lite_topic(name) for name in command.names)
    if ALL_LITE_TOPICS in names and command.action in ("ADD", "REPLACE"):
        _check_every(group, command)
    if command.action in ("REMOVE", "DROP"):
        return _remove(tx, key, names, command.action)
    before = tx.state.watches.get(key, tx.now_ms)
    had = before.names.keys() if before else set[str]()
    wanted = len(names.keys() | had if command.action == "ADD" else names)
    _check_quota(wanted)
    tx.state.watches.check_room(wanted - len(had), tx.now_ms)
    bind(tx, group, parent)
    watch = tx.state.watches.refresh(key, tx.now_ms)
    evicted: list[tuple[str, str]] = []
    if group.lite_exclusive and command.action == "ADD":
        evicted = _take_over(tx, key, watch, names)
    elif group.lite_exclusive:
        lost = _not_mine(tx, key, watch, names)
        evicted = [(command.client, name) for name in lost]
        names = {name: None for name in names if name not in lost}
    if command.action == "REPLACE":
        tx.state.watches.remove(key, watch.names.keys() - names.keys())
    fresh = [name for name in names if name not in watch.names]
    _begin_all(tx, group, parent, fresh, names if command.action == "ADD" else {}, command.start)
    if tx.state.watches.add(key, fresh):
        tx.woken.add((group.name, wake_key(*key[1:])))
    return LiteSynced(len(watch.names), tuple(evicted))


def _remove(tx: Tx, key: Key, names: Iterable[str], action: str) -> LiteSynced:
    """Removes names, or the whole set."""
    if action == "DROP":
        tx.state.watches.drop(key)
    else:
        tx.state.watches.remove(key, names)
    left = tx.state.watches.get(key, tx.now_ms)
    return LiteSynced(len(left.names) if left else 0)


def _begin_all(
    tx: Tx, group: Group, parent: Topic, fresh: list[str], names: Iterable[str], start: tuple[str, int] | None
) -> None:
    """Fixes where the group begins in existing lite topics; `start` applies to all `names`, also known ones."""
    for name in fresh:
        if (topic := lite_topics.find(tx, parent, name)) is not None:
            bind(tx, group, topic)
    for name in names if start is not None else ():
        if start is not None and (topic := lite_topics.find(tx, parent, name)) is not None:
            _begin(tx, group, topic, start, name in fresh)


def _check_every(group: Group, command: SyncLite) -> None:
    """Raises Refused for a subscription to all lite topics that cannot be what its client expects."""
    if group.lite_exclusive:
        raise invalid(
            f"group {group.name!r} gives each lite topic to one client (lite_exclusive), so it cannot read '*'",
            field="lite_topic",
            action="name the lite topics, or subscribe with a group that shares them",
        )
    if command.start is not None:
        raise invalid(
            "'*' with an offset: each lite topic has offsets of its own",
            field="offset_option",
            action="leave it out, or name the lite topics",
        )


def _check_quota(count: int) -> None:
    """Refused LITE_SUBSCRIPTION_QUOTA for more names than a client may have."""
    if count > NAMES_PER_CLIENT + SLACK:
        raise Refused(
            "LITE_SUBSCRIPTION_QUOTA",
            f"{count} lite topics for one client, at most {NAMES_PER_CLIENT} are allowed",
            field="lite_topic",
            action="subscribe to fewer, or share them among more clients",
        )


def _others(tx: Tx, key: Key, name: str) -> list[Key]:
    """Other clients of the same group that have this name."""
    found = tx.state.watches.watchers(key[1], name, tx.now_ms)
    return [other for other in found if other[0] == key[0] and other != key]


def _take_over(tx: Tx, key: Key, watch: Watch, names: dict[str, None]) -> list[tuple[str, str]]:
    """An ADD with exclusive lite topics: takes names from other clients; returns (client, name) pairs they lose."""
    watches, lost = tx.state.watches, dict[Key, list[str]]()
    watches.evict(key, watch.evicted - names.keys())
    for name in names:
        for other in _others(tx, key, name):
            lost.setdefault(other, []).append(name)
    for other, taken in lost.items():
        if (loser := watches.get(other, tx.now_ms)) is not None:
            watches.evict(other, loser.evicted.union(taken))
            watches.remove(other, taken)
    return sorted((other[2], name) for other, taken in lost.items() for name in taken)


def _not_mine(tx: Tx, key: Key, watch: Watch, names: dict[str, None]) -> set[str]:
    """A REPLACE with exclusive lite topics: returns names that belong to other clients; forgets lost names that the
    client no longer asks for.
    """
    lost = watch.evicted & names.keys()
    lost |= {name for name in names if name not in watch.names and _others(tx, key, name)}
    tx.state.watches.evict(key, lost)
    return set(lost)


def _begin(tx: Tx, group: Group, topic: Topic, start: tuple[str, int], fresh: bool) -> None:
    """Moves a group to the start position of a subscription; voids its held messages, as a reset does."""
    (kind, number), (least, most) = start, offsets.ends(tx, topic, 0)
    now = tx.state.poff.get((group.group_id, topic.topic_id, 0), least)
    wanted = {
        "LAST": now,
        "MIN": least,
        "MAX": most,
        "OFFSET": number,
        "TAIL": (most if fresh and now == least else now) - number,
    }.get(kind)
    if wanted is None:
        wanted = offset_at(tx, topic.topic_id, 0, number, least, most)
    wanted = max(least, min(most, wanted))
    if wanted != now:
        offsets.put_at(tx, group, topic, {0: wanted})
