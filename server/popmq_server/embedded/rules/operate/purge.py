"""Removes the remains of deleted topics and groups from the store, PURGE_KEYS_MAX keys per transaction.

The delete has removed the name, and ids are never reused, so no client can reach the rest. The job is a record in
`purge`, so it continues after a restart.

PurgeTopic replaces a topic by a new one with its name and settings. The old topic's messages go as those of a deleted
topic and cannot return, whether delayed, half, leased or sent again. Offsets continue: queues begin where the old ones
ended, and groups keep their counters and filters, with their positions at these ends. They are moved in pieces; a group
that a command names meanwhile is moved first (readers.group). A sealed token of an owner stays sealed: a reader that
repeats it learns that its messages are lost, and gets no new ones for them.

         queue      0 ───────────────────────────▶ 17          17
         topic 3    ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪  in `purge`    topic 9     empty: the same name, queues, groups, retention …

Removing a topic removes its chunks, queues and history, and each group's state in it; removing a group removes its
positions, retries, owners and leases. Leases of either are dropped without a revive.

See docs/decisions/0034-purge-by-new-id.md.
"""

import itertools

from popmq_server.contract.commands import PurgeTopic
from popmq_server.embedded.operations import NextPurge, Purged
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.rules.retention import floors
from popmq_server.embedded.rules.sending import delay, transaction
from popmq_server.embedded.rules.topics import (
    backlog,
    quotas,
    readers,
    registry,
    removal,
    topic,
)
from popmq_server.embedded.rules.topics.removal import SUBSCRIPTION_COST, drop_range
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.checkpoints import DONE
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import STAT_KEY, U32
from popmq_server.errors import topic_not_found
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.records import (
    HeldNumbers,
    Lites,
    Topic,
    TopicStat,
)

PURGE_KEYS_MAX = 1000
#: The cost of the end of a lease, in keys: some 30 µs.
LEASE_COST = 4
#: Positions that one piece of a purge moves; a group counts SUBSCRIPTION_COST of them more.
POSITIONS_MAX = 1000
#: A deleted entity with more subscriptions than this is taken to have leases.
PAIRS_MAX = 100
#: In the answer to a purge: the groups of an earlier purge are moved first.
NOT_BEGUN = -1


def purge_topic(tx: Tx, command: PurgeTopic | NextPurge) -> Purged:
    """Drops all messages of a topic for all groups at once; returns their number, and `after` for the next piece.

    Parked Pops stay parked. A purge of a topic whose groups are still being moved waits for them.
    """
    topic = registry.topic(tx, command.name)
    if isinstance(command, NextPurge) and command.after > 0:
        moves = topic is not None and topic.topic_id == command.after and _move_groups(tx, topic)
        return Purged(0, command.after if moves else 0)
    if topic is None:
        raise topic_not_found(command.name, "name")
    if topic.moving_from and _move_groups(tx, topic):
        return Purged(0, NOT_BEGUN)
    if _lags(tx, topic):
        return Purged(0, NOT_BEGUN)
    dropped, new = _replace(tx, tx.state.topics[topic.topic_id])
    return Purged(dropped, new.topic_id if _move_groups(tx, new) else 0)


def _lags(tx: Tx, topic: Topic) -> bool:
    """Whether groups are still before dropped chunks of a topic or its lite topics; moves some of them."""
    state = tx.state
    if state.lagging:
        floors.go_on(tx, floors.POSITIONS_MAX)
    return any(topic.topic_id in (topic_id, state.parent_of(topic_id)) for topic_id in state.lagging)


def _replace(tx: Tx, old: Topic) -> tuple[int, Topic]:
    """Replaces a topic by an empty one; returns the number of its messages, and the new topic."""
    topic.flush(tx)  # messages that this commit appended belong to the old topic
    state, stat = tx.state, tx.state.topic_stat.get(old.topic_id, TopicStat())
    dropped = backlog.stored(state, old) + stat.delayed + stat.half
    topic.end_queues(tx, old)
    new = registry.begin_again(tx, old)
    topic.continue_queues(tx, old, new)
    tx.wake(None, new.topic_id)
    tx.arrive(new.topic_id, None)
    return dropped, new


def _move_groups(tx: Tx, new: Topic) -> bool:
    """Moves some groups from a purged topic to where it began again; returns whether there are more.

    A group that a command names meanwhile is moved at once (readers.group). The walk goes from the last group
    to the first: those that leave it meanwhile do not make it skip any.
    """
    state, old_id = tx.state, new.moving_from
    groups = state.topic_groups.get(old_id, ())
    stop = min(state.purged.get(old_id, len(groups)), len(groups))
    start = max(0, stop - max(1, POSITIONS_MAX // (new.queues + SUBSCRIPTION_COST)))
    left = [
        group_id
        for group_id in groups[start:stop]
        if group_id in state.groups and (group_id, new.topic_id) not in state.stat
    ]
    readers.rebind(tx, new, left)
    if start:
        state.purged[old_id] = start
        return True
    state.purged.pop(old_id)
    registry.groups_moved(tx, new)
    return False


def _go_on(tx: Tx, old_id: int, kind: str) -> bool:
    """Moves some groups of a purged topic; returns whether any were left to be moved."""
    new = tx.state.topics.get(int(kind.removeprefix(registry.PURGED)))
    if new is None or new.moving_from != old_id:
        tx.state.purged.pop(old_id)  # a place in the groups, not yet one in the CheckPoints
        registry.give_up_moving(tx, old_id)
        return False
    _move_groups(tx, new)
    return True


def step(tx: Tx, entity_id: int, kind: str, keys_max: int = PURGE_KEYS_MAX) -> None:
    """Removes at most `keys_max` keys; the last piece also removes the job.

    The tables forget the entity only after its ranges are removed, so a restart in between finds the same job.
    """
    if kind.startswith(registry.PURGED):
        if _go_on(tx, entity_id, kind):
            return
        kind = "topic"
    if kind.startswith(registry.LITE):
        left = lite_topics.step(tx, TopicId(entity_id), keys_max, lite_topics.parent_of(kind))
    else:
        left = _drop_checkpoints(tx, entity_id, kind, keys_max)
        drop = _drop_topic if kind == "topic" else _drop_group
        left = drop(tx, entity_id, left) if left else 0
    if left:
        registry.removed(tx, entity_id)
        tx.state.purged.pop(entity_id)


def _drop_topic(tx: Tx, topic_id: int, left: int) -> int:
    """Removes a topic and its subscriptions; returns how many more keys may go in this piece, 0 = it is not done."""
    left = lite_topics.step_orphans(tx, TopicId(topic_id), left)
    left = removal.drop_readers(tx, TopicId(topic_id), left) if left else 0
    for name in removal.OF_TOPIC:
        left = drop_range(tx, name, U32.pack(topic_id), left)
    left = transaction.drop(tx, topic_id, delay.drop(tx, topic_id, left))
    if left:
        quotas.forget_sends(tx, topic_id)
        tx.state.forget_topic(TopicId(topic_id))
    return left


def _drop_group(tx: Tx, group_id: int, left: int) -> int:
    """Removes a group, its subscriptions and owners; returns how many more keys may go, 0 = it is not done."""
    left = removal.drop_subscriptions(tx, GroupId(group_id), left)
    left = removal.drop_owners(tx, GroupId(group_id), left) if left else 0
    if left:
        tx.state.forget_group(GroupId(group_id))
    return left


def _drop_checkpoints(tx: Tx, entity_id: int, kind: str, left: int) -> int:
    """Ends leases of a deleted entity, one piece of a walk over all; returns how many more keys may go in this piece.

    No request can create new leases of a deleted entity, so one walk is enough.
    """
    state = tx.state
    start = state.purged.get(entity_id, 0)
    if not start and not _may_hold(tx, entity_id, kind):
        start = state.purged[entity_id] = DONE
    if start == DONE:
        return left
    found, after = state.ck.of(lambda *pair: entity_id in _entities(tx, pair, kind), start)
    for ck_id in found:
        if left <= 0:
            state.purged[entity_id] = ck_id
            return 0
        ck = state.ck[ck_id]
        for sub, part in leases.parts(tx, ck):
            leases.hold(tx, ck, part.undone & ~part.released, -1)
            if part.released:
                leases.loosen(tx, ck.owner_id, -part.released.bit_count())
            leases.set_part(tx, ck, sub, None)
            left -= LEASE_COST
    state.purged[entity_id] = after
    return max(0, left) if after == DONE else 0


def _may_hold(tx: Tx, entity_id: int, kind: str) -> bool:
    """Whether a deleted entity may have leases: the walk over all of them takes a commit for each 2,000."""
    state = tx.state
    if kind == "topic":
        topic_id = TopicId(entity_id)
        pairs = [(group_id, topic_id) for group_id in state.topic_groups.get(topic_id, ())[:PAIRS_MAX]]
        if state.lites.get(topic_id, Lites()).topics:
            return True
    else:
        rows = itertools.islice(tx.kv.scan_keys("stat", U32.pack(entity_id)), PAIRS_MAX)
        pairs = [(GroupId(group_id), TopicId(topic_id)) for group_id, topic_id in map(STAT_KEY.unpack_from, rows)]
    if len(pairs) >= PAIRS_MAX or any(state.owner_count.get(group_id) for group_id, _ in pairs):
        return True
    return any(any(state.held.get(pair, HeldNumbers())) for pair in pairs)


def _entities(tx: Tx, pair: tuple[int, ...], kind: str) -> tuple[int, ...]:
    """The entities whose removal ends a lease: its group, or its topic and the parent if that is a lite topic."""
    group_id, topic_id = pair
    return (topic_id, tx.state.parent_of(topic_id)) if kind == "topic" else (group_id,)
