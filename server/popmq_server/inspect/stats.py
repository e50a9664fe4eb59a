"""The answers to queries (commands/queries.py) about topics, groups, leases, owners and the store. All read-only."""

import itertools
from collections import Counter

from popmq_server.commands import queries
from popmq_server.commands.numbers import GroupNumbers, LeaseNumbers, OwnerNumbers, StoreUse, TopicNumbers
from popmq_server.delivery import deadletter
from popmq_server.errors import group_not_found, topic_not_found
from popmq_server.inspect import lease_age
from popmq_server.inspect.browse import browse
from popmq_server.lite import lite_topics
from popmq_server.model.checkpoint import KIND_NAMES
from popmq_server.model.ids import GroupTopic
from popmq_server.model.message import RETRY_PREFIX, dead_letter_topic
from popmq_server.model.records import Group, Held, Lites, Stat, Subscription, Topic, TopicStat
from popmq_server.operate import expiry
from popmq_server.state.state import State
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import DUE_KEY, FWAIT_VALUE, NEVER, RQ_VALUE, STAT_KEY, SUB_OWNER
from popmq_server.topics.backlog import bytes_of, ready, stored
from popmq_server.topics.log import Log, entries

#: Retry entries, and waiting entries, that the search for the oldest message reads.
OLDEST_RETRIES = 1000
#: Steps of one piece of the list of leases: a key in `due` costs one step, a row LEASE_ROW_COST more.
LEASES_PIECE, LEASE_ROW_COST = 2000, 7


def _pairs(tx: Tx, topic_name: str, group_name: str) -> list[tuple[Group, Topic]]:
    """(group, topic) for each topic that a group has named, sorted by name; Refused for names that do not exist.

    A retry topic has one pair: its group and its topic.
    """
    if topic_name.startswith(RETRY_PREFIX):
        pair = tx.retry_topic(topic_name)
        known = (pair[0].group_id, pair[1].topic_id) in tx.state.stat and group_name in ("", pair[0].name)
        return [pair] if known else []
    if topic_name and tx.topic(topic_name) is None:
        raise topic_not_found(topic_name)
    if group_name and tx.group(group_name) is None:
        raise group_not_found(group_name)
    pairs = []
    named = tx.topic(topic_name) if topic_name else None
    for topic in [named] if named else tx.state.named_topics():
        for group_id in tx.state.topic_groups.get(topic.topic_id, ()):
            group = tx.state.groups.get(group_id)
            if group is not None and group_name in ("", group.name):
                pairs.append((group, topic))
    return sorted(pairs, key=lambda pair: (pair[0].name, pair[1].name))


def groups(tx: Tx, query: queries.Groups) -> list[GroupNumbers]:
    """The numbers of every group in every topic that it has named, limited to the requested topic and group."""
    pairs = _pairs(tx, query.topic, query.group)
    owners = Counter(group_id for group_id, _ in tx.state.owners)
    return [_group_numbers(tx, group, topic, owners[group.group_id]) for group, topic in pairs]


def _group_numbers(tx: Tx, group: Group, topic: Topic, owners: int) -> GroupNumbers:
    state, where = tx.state, (group.group_id, topic.topic_id)
    stat, held = state.stat[where], state.held.get(where, Held())
    subscription, read_ms = state.subscriptions.get(where, Subscription()), state.last_read.get(where, 0)
    return GroupNumbers(
        group=group.name,
        topic=topic.name,
        ready=ready(state, group.group_id, topic) - deadletter.gone_ahead(tx, where),
        in_flight=held.ordinary + held.owned,
        retry=stat.retry,
        backoff=held.backoff,
        dead=_dead(tx, group),
        acked=stat.acked,
        dropped=stat.dropped,
        quarantined=stat.quarantined,
        oldest_ms=_oldest_ms(tx, group, topic, lease_age.stored_ms(tx.kv, state, where)),
        owners=owners,
        filtered=stat.filtered,
        waiting=stat.waiting,
        stopped=_stopped(state, where) if stat.waiting else 0,
        mode=subscription.mode,
        delayed=state.topic_stat.get(topic.topic_id, TopicStat()).delayed,
        read_ms=read_ms or subscription.idle_ms,
        expires_ms=expiry.expires_ms(group, subscription, read_ms),
        bytes_behind=bytes_of(state, topic, ready(state, group.group_id, topic)),
        dead_blocked=state.dead_blocked_count.get(where, 0),
    )


def _stopped(state: State, where: GroupTopic) -> int:
    """The number of message groups stopped by a failure; the failed message waits."""
    return sum(1 for key in state.stopped if key[:2] == where or (key[0], state.parent_of(key[1])) == where)


def _dead(tx: Tx, group: Group) -> int:
    """The number of messages in the dead letter topic of a group, from all topics."""
    topic = tx.topic(dead_letter_topic(group.name))
    return stored(tx.state, topic) if topic else 0


def _oldest_ms(tx: Tx, group: Group, topic: Topic, leased: int) -> int:
    """The store time of the oldest unfinished message: in the queues, retry and waiting entries, and leases."""
    state, log = tx.state, Log(tx.kv)
    units: list[tuple[int, int]] = []
    for queue in range(topic.queues):
        least = state.queue_min.get((topic.topic_id, queue), 0)
        offset = max(least, state.poff.get((group.group_id, topic.topic_id, queue), least))
        units += [unit[1:] for unit in entries(tx.kv, topic.topic_id, queue, offset, 1)]
    # Entries are in the order of their release, so each must be read; positions grow with the store time.
    retries = itertools.islice(tx.kv.scan("rq", STAT_KEY.pack(group.group_id, topic.topic_id)), OLDEST_RETRIES)
    if first := min((RQ_VALUE.unpack_from(value)[:2] for _, value in retries), default=None):
        units.append(first)
    waiting = itertools.islice(tx.kv.scan("fwait", STAT_KEY.pack(group.group_id, topic.topic_id)), OLDEST_RETRIES)
    if first := min((FWAIT_VALUE.unpack_from(value)[:2] for _, value in waiting), default=None):
        units.append(first)
    times = [read[0] for position, size in units if (read := log.fetch(topic.topic_id, position, size))]
    if topic.type == "LITE":
        times = [lite_topics.oldest(tx, group, topic)]
    return min(filter(None, (*times, leased)), default=0)


def topics(tx: Tx, query: queries.Topics) -> list[TopicNumbers]:
    """The numbers of all topics, sorted by name, or of one topic or retry topic."""
    name = query.name
    if name.startswith(RETRY_PREFIX):
        return [_retry_topic(tx, name)]
    if name and tx.topic(name) is None:
        raise topic_not_found(name)
    one = tx.topic(name) if name else None
    found = [one] if one else sorted(tx.state.named_topics(), key=lambda topic: topic.name)
    return [_topic_numbers(tx.state, topic) for topic in found]


def _retry_topic(tx: Tx, name: str) -> TopicNumbers:
    """A retry topic as a topic of one queue with entry numbers as offsets. It has no bytes of its own."""
    group, topic = tx.retry_topic(name)
    stat = tx.state.stat.get((group.group_id, topic.topic_id), Stat())
    page = browse(tx, queries.Browse(name, 0, 0, 0, 0))
    ends = [(0, page.min_offset, page.max_offset)]
    return TopicNumbers(
        topic=topic._replace(name=name, queues=1),
        messages=stat.retry + stat.waiting,
        queues=ends,
        bytes=0,
        delayed=0,
        half=0,
    )


def _topic_numbers(state: State, topic: Topic) -> TopicNumbers:
    stat = state.topic_stat.get(topic.topic_id, TopicStat())
    lites = state.lites.get(topic.topic_id, Lites()).topics
    return TopicNumbers(
        topic=topic,
        messages=stored(state, topic),
        queues=_queues(state, topic),
        bytes=stat.bytes,
        delayed=stat.delayed,
        half=stat.half,
        lite_topics=lites,
        abandoned=stat.abandoned,
    )


def held_by(tx: Tx, query: queries.HeldBy) -> dict[tuple[str, str], int]:
    """The number of messages leased to each client, by (group, client), of one group or all."""
    group_name = query.group
    if group_name and tx.group(group_name) is None:
        raise group_not_found(group_name)
    names = {group_id: group.name for group_id, group in tx.state.groups.items() if group_name in ("", group.name)}
    return {(names[key[0]], key[1]): count for key, count in tx.state.clients.items() if key[0] in names}


def _queues(state: State, topic: Topic) -> list[tuple[int, int, int]]:
    where = [(topic.topic_id, queue) for queue in range(topic.queues)]
    return [(key[1], state.queue_min.get(key, 0), state.queue_max.get(key, 0)) for key in where]


def subscriptions(tx: Tx, query: queries.Subscriptions) -> list[tuple[str, Subscription]]:
    """(topic name, subscription) of each topic that a group has named, sorted by name."""
    pairs = [(topic, (group.group_id, topic.topic_id)) for group, topic in _pairs(tx, "", query.group)]
    return [(topic.name, tx.state.subscriptions.get(where, Subscription())) for topic, where in pairs]


def group_settings(tx: Tx, query: queries.GroupSettings) -> list[Group]:
    """The settings of all groups, sorted by name, or of one."""
    name = query.name
    if name and tx.group(name) is None:
        raise group_not_found(name)
    one = tx.group(name) if name else None
    return [one] if one else sorted(tx.state.groups.values(), key=lambda group: group.name)


def leases(tx: Tx, query: queries.Leases) -> tuple[list[LeaseNumbers], int, bytes]:
    """One piece of the list of leases, soonest deadline first: at most `leases_max` rows, the number of leases that the
    piece found, and the key at which the next piece begins (b"" = no more). CheckPoints of an owner have no deadline of
    their own: they are listed at the key of their owner.
    """
    _pairs(tx, query.topic, query.group)
    group, topic = tx.group(query.group) if query.group else None, tx.topic(query.topic) if query.topic else None
    shown, met, left = list[LeaseNumbers](), 0, LEASES_PIECE
    for key, _ in tx.kv.scan("due", b"", query.after):
        if left <= 0:
            return shown, met, key
        left -= 1
        due_ms, ck_id, sub = DUE_KEY.unpack(key)
        if due_ms >= NEVER:
            break
        for part in _bound_to(tx, ck_id) if sub == SUB_OWNER else [(ck_id, sub)]:
            if _is_of(tx, tx.state.ck.pair(part[0]), topic, group):
                met += 1
                if len(shown) < query.leases_max:
                    shown.append(_lease_numbers(tx, *part))
                    left -= LEASE_ROW_COST
    return shown, met, b""


def _bound_to(tx: Tx, owner_id: int) -> list[tuple[int, int]]:
    """(ck_id, sub) of the CheckPoints that have members under an owner's lease."""
    found = []
    for token in tx.state.owner_tokens.get(owner_id, ()):
        key = (tx.state.tokens[token].ck_id, 0)
        part = tx.state.leases.get(key) if key[0] else None
        if part is not None and part.undone & ~part.released:
            found.append(key)
    return found


def _is_of(tx: Tx, pair: GroupTopic, topic: Topic | None, group: Group | None) -> bool:
    """Whether a lease belongs to this topic and group, which must exist; None: any."""
    group_id, topic_id = pair
    if group_id not in tx.state.groups or topic_id not in tx.state.topics:
        return False
    named = topic is None or topic.topic_id in (topic_id, tx.state.parent_of(topic_id))
    return named and (group is None or group_id == group.group_id)


def _lease_numbers(tx: Tx, ck_id: int, sub: int) -> LeaseNumbers:
    """The row of one part; an owner's CheckPoint has its owner's deadline."""
    ck, part = tx.state.ck[ck_id], tx.state.leases[(ck_id, sub)]
    group, topic = tx.state.groups[ck.group_id], tx.state.topics[ck.topic_id]
    key = tx.state.owner_keys.get(ck.owner_id)
    return LeaseNumbers(
        ck_id=ck_id,
        group=group.name,
        topic=topic.name,
        client=ck.client,
        owner=tx.state.owners[key].name if key else "",
        popped_ms=ck.popped_ms,
        due_ms=tx.state.due_ms_of(ck, part),
        members=ck.members,
        undone=(part.undone & ~part.released).bit_count(),
        kind=KIND_NAMES[ck.kind],
    )


def owners(tx: Tx, query: queries.Owners) -> list[OwnerNumbers]:
    """The owners of one group or all, with the undone messages bound to their tokens."""
    group_name = query.group
    if group_name and tx.group(group_name) is None:
        raise group_not_found(group_name)
    found = []
    for owner in tx.state.owners.values():
        group = tx.state.groups.get(owner.group_id)
        if group is None or group_name not in ("", group.name):
            continue
        tokens = tx.state.owner_tokens.get(owner.owner_id, ())
        parts = [tx.state.leases.get((tx.state.tokens[key].ck_id, 0)) for key in tokens]
        found.append(
            OwnerNumbers(
                group=group.name,
                owner=owner.name,
                generation=owner.generation,
                acked_epoch=owner.acked_epoch,
                lease_until_ms=owner.lease_until_ms,
                released=owner.released,
                last_seen_ms=owner.last_seen_ms,
                tokens=len(tokens),
                messages=sum(part.undone.bit_count() for part in parts if part),
            )
        )
    return sorted(found)


def store(tx: Tx, _: queries.Store) -> StoreUse:
    """Counts quarantined records: they are few."""
    return StoreUse(tx.kv.used_pages(), sum(1 for _ in tx.kv.scan("quar")))
