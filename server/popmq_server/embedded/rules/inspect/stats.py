"""The answers to queries (commands/queries.py) about topics, groups, leases, owners and the store. All read-only."""

import itertools

from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import (
    GroupNumbers,
    LeaseNumbers,
    LeasePage,
    OwnerNumbers,
    Rows,
    ScheduleNumbers,
    TopicNumbers,
)
from popmq_server.embedded.invariants.broken import BrokenInvariant
from popmq_server.embedded.operations import StoreState, StoreUse, TopicNames
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.delivery.owner import covers_owner
from popmq_server.embedded.rules.inspect import fair_numbers, names
from popmq_server.embedded.rules.inspect.browse import browse
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.rules.operate import idle_subscriptions
from popmq_server.embedded.rules.pulling.offsets import retry_topic
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.rules.topics.backlog import ready, sizing, stored
from popmq_server.embedded.rules.topics.log import Log, entries, located
from popmq_server.embedded.state.leases import oldest_chunk
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import KIND_NAMES, members_of
from popmq_server.embedded.store.keys import (
    DUE_KEY,
    FWAIT_VALUE,
    NEVER,
    RQ_VALUE,
    STAT_KEY,
    SUB_OWNER,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.errors import group_not_found, topic_not_found
from popmq_server.values.handles import place_of
from popmq_server.values.ids import GroupId, GroupTopic, TopicId
from popmq_server.values.message import RECORD, RETRY_PREFIX, dead_letter_topic
from popmq_server.values.reach import EVERYWHERE, Reach, covers
from popmq_server.values.records import (
    Group,
    HeldNumbers,
    Lites,
    Owner,
    Stat,
    Subscription,
    Topic,
    TopicStat,
)

#: Retry entries, and waiting entries, that the search for the oldest message reads.
OLDEST_RETRIES = 1000
#: Steps of one piece of the list of leases: a key in `due` costs one step, a row LEASE_ROW_COST more.
LEASES_PIECE, LEASE_ROW_COST = 2000, 7
#: Steps (names.py) of a row of numbers of a group, a topic, an owner: some 5 µs each.
GROUP_ROW_COST, TOPIC_ROW_COST, OWNER_ROW_COST = 20, 3, 2


def groups(tx: Tx, query: queries.Groups) -> Rows[GroupNumbers]:
    """The numbers of groups in topics that they have named, limited to the requested topic and group.

    With both names it is one row, of zeros until the group names the topic.
    """
    found, budget = Rows[GroupNumbers](), names.StepsLeft()
    for pair in names.pairs(tx, query.topic, query.group, query.after):
        if isinstance(pair, str):
            if not budget.take():
                return Rows(found, pair)
            continue
        has_named = (pair.group.group_id, pair.topic.topic_id) in tx.state.stat
        found.append((_group_numbers if has_named else _zeros)(tx, pair.group, pair.topic))
        if not budget.take(_row_cost(tx, pair)) or len(found) == query.rows_max:
            return Rows(found, pair.after)
    return found


def _row_cost(tx: Tx, pair: names.NamedPair) -> int:
    """The steps of one row of numbers: it reads the oldest of the retries and of the waiting messages."""
    stat = tx.state.stat.get((pair.group.group_id, pair.topic.topic_id), Stat())
    return GROUP_ROW_COST + pair.topic.queues + min(stat.retry, OLDEST_RETRIES) + min(stat.waiting, OLDEST_RETRIES)


def _group_numbers(tx: Tx, group: Group, topic: Topic) -> GroupNumbers:
    state, where = tx.state, (group.group_id, topic.topic_id)
    stat, held = state.stat[where], state.held.get(where, HeldNumbers())
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
        oldest_ms=_oldest_ms(tx, group, topic, oldest_leased_ms(tx.kv, state, where)),
        owners=state.owner_count.get(group.group_id, 0),
        filtered=stat.filtered,
        expired=stat.expired,
        waiting=stat.waiting,
        stopped=state.stopped_count.get(where, 0),
        mode=subscription.mode,
        delayed=state.topic_stat.get(topic.topic_id, TopicStat()).delayed,
        read_ms=read_ms or subscription.idle_ms,
        expires_ms=idle_subscriptions.expires_ms(group, subscription, read_ms),
        bytes_behind=sizing(state, topic)(ready(state, group.group_id, topic)),
        dead_blocked=state.dead_blocked_count.get(where, 0),
        **fair_numbers.of(tx, group, topic),
    )


def _zeros(tx: Tx, group: Group, topic: Topic) -> GroupNumbers:
    """The row of a topic that the group has not named: numbers of both are 0, those of one of them are not."""
    return GroupNumbers(
        group=group.name,
        topic=topic.name,
        ready=0,
        in_flight=0,
        retry=0,
        backoff=0,
        dead=_dead(tx, group),
        acked=0,
        dropped=0,
        quarantined=0,
        oldest_ms=0,
        owners=tx.state.owner_count.get(group.group_id, 0),
        delayed=tx.state.topic_stat.get(topic.topic_id, TopicStat()).delayed,
    )


def _dead(tx: Tx, group: Group) -> int:
    """The number of messages in the dead letter topic of a group, from all topics."""
    topic = registry.topic(tx, dead_letter_topic(group.name))
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


def topics(tx: Tx, query: queries.Topics) -> Rows[TopicNumbers]:
    """The numbers of all topics, sorted by name, or of one topic or retry topic."""
    name = query.name
    if name.startswith(RETRY_PREFIX):
        return Rows([_retry_topic(tx, name)])
    if name and registry.topic(tx, name) is None:
        raise topic_not_found(name)
    one = registry.topic(tx, name) if name else None
    if one is not None:
        return Rows([_topic_numbers(tx.state, one)])
    found, budget = Rows[TopicNumbers](), names.StepsLeft()
    for topic in names.topics(tx, query.after):
        found.append(_topic_numbers(tx.state, topic))
        if not budget.take(TOPIC_ROW_COST + topic.queues) or len(found) == query.rows_max:
            return Rows(found, topic.name)
    return found


def topic_names(tx: Tx, query: TopicNames) -> dict[int, str]:
    """Id → name of those of these topics that exist."""
    found = ((topic_id, tx.state.topics.get(topic_id)) for topic_id in query.topic_ids)
    return {topic_id: topic.name for topic_id, topic in found if topic is not None}


def _retry_topic(tx: Tx, name: str) -> TopicNumbers:
    """A retry topic as a topic of one queue with entry numbers as offsets. It has no bytes of its own."""
    group, topic = retry_topic(tx, name)
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
    """The number of messages leased to each of the requested clients that has any."""
    found = {}
    for group_name, client in query.clients:
        group = readers.group(tx, group_name)
        if group is not None and (count := tx.state.clients.get((group.group_id, client))):
            found[group_name, client] = count
    return found


def _queues(state: State, topic: Topic) -> list[tuple[int, int, int]]:
    where = [(topic.topic_id, queue) for queue in range(topic.queues)]
    return [(key[1], state.queue_min.get(key, 0), state.queue_max.get(key, 0)) for key in where]


def subscriptions(tx: Tx, query: queries.Subscriptions) -> Rows[tuple[str, Subscription]]:
    """(topic name, subscription) of each topic that a group has named, sorted by name."""
    found, budget = Rows[tuple[str, Subscription]](), names.StepsLeft()
    for pair in names.pairs(tx, "", query.group, query.after):
        if isinstance(pair, names.NamedPair):
            where = (pair.group.group_id, pair.topic.topic_id)
            found.append((pair.topic.name, tx.state.subscriptions.get(where, Subscription())))
        if not budget.take():
            return Rows(found, pair if isinstance(pair, str) else pair.after)
    return found


def group_settings(tx: Tx, query: queries.GroupSettings) -> Rows[Group]:
    """The settings of all groups, sorted by name, or of one."""
    name = query.name
    if name and readers.group(tx, name) is None:
        raise group_not_found(name)
    one = readers.group(tx, name) if name else None
    if one is not None:
        return Rows([one])
    found, budget = Rows[Group](), names.StepsLeft()
    for group in names.groups(tx, query.after):
        found.append(group)
        if not budget.take() or len(found) == query.rows_max:
            return Rows(found, group.name)
    return found


def leases(tx: Tx, query: queries.Leases) -> LeasePage:
    """One piece of the list of leases, soonest deadline first: at most `leases_max` rows (0: it only counts), the
    number of leases that the piece found, and where the next piece begins ("" = no more). CheckPoints of an owner have
    no deadline of their own: they are listed at the key of their owner. A piece ends when it has all its rows.
    """
    _must_exist(tx, query.topic, query.group)
    group, topic = (
        readers.group(tx, query.group) if query.group else None,
        registry.topic(tx, query.topic) if query.topic else None,
    )
    shown, met, left = list[LeaseNumbers](), 0, LEASES_PIECE
    begin, listed = _lease_place(query.after)
    for key in tx.kv.scan_keys("due", b"", begin):
        if left <= 0:
            return LeasePage(shown, met, key.hex())
        left -= 1
        due_ms, ck_id, sub = DUE_KEY.unpack(key)
        if due_ms >= NEVER:
            break
        parts = _bound_to(tx, ck_id) if sub == SUB_OWNER else [(ck_id, sub)]
        for place in range(listed if key == begin else 0, len(parts)):
            if query.leases_max and len(shown) == query.leases_max:
                return LeasePage(shown, met, (key + U32.pack(place)).hex())
            if parts[place] not in tx.state.leases:
                continue  # done by a command of the same commit batch; its key in the store is removed with the batch
            pair = tx.state.ck.pair(parts[place][0])
            if _is_of(tx, pair, topic, group) and _reaches(tx, query.reach, pair):
                met += 1
                if query.leases_max:
                    shown.append(_lease_numbers(tx, *parts[place]))
                    left -= LEASE_ROW_COST
    return LeasePage(shown, met, "")


def _lease_place(token: str) -> tuple[bytes, int]:
    """The key at which a list of leases continues, and how many CheckPoints of an owner there were listed."""
    after = place_of(token, DUE_KEY.size, DUE_KEY.size + U32.size)
    return after[: DUE_KEY.size], U32.unpack(after[DUE_KEY.size :])[0] if len(after) > DUE_KEY.size else 0


def _must_exist(tx: Tx, topic_name: str, group_name: str) -> None:
    """Raises Refused for names that do not exist; empty ones are allowed."""
    if topic_name.startswith(RETRY_PREFIX):
        retry_topic(tx, topic_name)
    elif topic_name and registry.topic(tx, topic_name) is None:
        raise topic_not_found(topic_name)
    if group_name and readers.group(tx, group_name) is None:
        raise group_not_found(group_name)


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


def _reaches(tx: Tx, reach: Reach, pair: GroupTopic) -> bool:
    """Whether the caller may see this group in this topic, both of which exist."""
    return reach == EVERYWHERE or covers(reach, tx.state.name_of(pair[1]), tx.state.groups[pair[0]].name)


def _lease_numbers(tx: Tx, ck_id: int, sub: int) -> LeaseNumbers:
    """The row of one part; an owner's CheckPoint has its owner's deadline."""
    ck, part = tx.state.ck[ck_id], tx.state.leases[(ck_id, sub)]
    group, topic = tx.state.groups[ck.group_id], tx.state.topics[ck.topic_id]
    key = tx.state.owner_keys.get(ck.owner_id)
    return LeaseNumbers(
        lease_id=str(ck_id),
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


def owners(tx: Tx, query: queries.Owners) -> Rows[OwnerNumbers]:
    """The owners of one group or all, by group, with the undone messages bound to their tokens."""
    _must_exist(tx, "", query.group)
    named = readers.group(tx, query.group) if query.group else None
    prefix = U32.pack(named.group_id) if named else b""
    found, budget = Rows[OwnerNumbers](), names.StepsLeft()
    for key in tx.kv.scan_keys("own", prefix, place_of(query.after)):
        owner = tx.state.owners.get((U32.unpack_from(key)[0], key[U32.size :]))
        group = tx.state.groups.get(owner.group_id) if owner else None
        if owner is not None and group is not None and covers_owner(tx, query.reach, group, owner):
            found.append(_owner_numbers(tx.state, group, owner))
        if not budget.take(OWNER_ROW_COST) or len(found) == query.rows_max:
            return Rows(found, (key + b"\0").hex())
    return found


def _owner_numbers(state: State, group: Group, owner: Owner) -> OwnerNumbers:
    return OwnerNumbers(
        group=group.name,
        owner=owner.name,
        generation=owner.generation,
        acked_epoch=owner.acked_epoch,
        lease_until_ms=owner.lease_until_ms,
        released=owner.released,
        last_seen_ms=owner.last_seen_ms,
        tokens=len(state.owner_tokens.get(owner.owner_id, ())),
        messages=state.owned.get(owner.owner_id, 0) + state.loose.get(owner.owner_id, 0),
    )


def store(tx: Tx, _: StoreState) -> StoreUse:
    """Counts quarantined records: they are few."""
    ahead_ms = tx.state.schedule_due - tx.wall_ms if tx.state.schedule_due else None
    schedules = ScheduleNumbers(sum(1 for _ in tx.state.schedules), ahead_ms)
    return StoreUse(tx.kv.used_pages(), sum(1 for _ in tx.kv.scan("quar")), schedules)


#: A metrics scrape reads each group in each topic, so it scans all leases only when the broker has few.
EXACT_LEASES = 200


def oldest_leased_ms(kv: Transaction, state: State, where: GroupTopic) -> int:
    """The store time of the oldest message that a group has leased in a topic; 0 = it has none.

    Exact while the broker has at most EXACT_LEASES leases. With more it is the store time of the chunk's first message:
    at most OPEN_MS_MAX earlier, in a chunk that several small commits share (topic.py).
    """
    position = oldest_chunk(state, where)
    if position is not None and state.leases.count() <= EXACT_LEASES and (exact := _first(kv, state, where, position)):
        return exact
    raw = None if position is None else kv.get("log", U64.pack(position)) or _kept(kv, position)
    return 0 if raw is None else int(RECORD.unpack_from(raw)[3])


def _first(kv: Transaction, state: State, where: GroupTopic, position: int) -> int:
    """The store time of the first leased message of a chunk, by a scan of all leases."""
    log, times = Log(kv), list[int]()
    for ck in state.ck.all_of(lambda group_id, topic_id: where in _wheres(state, group_id, topic_id)):
        parts = (state.leases.get((ck.ck_id, sub)) for sub in range(ck.members + 1))
        bits = sum(part.undone & ~part.released for part in parts if part is not None)
        bits &= sum(1 << member for member in members_of(bits) if ck.chunk_of(member) == position)
        try:
            units = [unit[3:] for unit in located(kv, ck, bits)] if bits else []
        except (BrokenInvariant, LookupError):  # a damaged CheckPoint must not hide the numbers of its group
            continue
        times += [read[0] for unit in units if (read := log.fetch(ck.topic_id, *unit)) is not None]
    return min(times, default=0)


def _wheres(state: State, group_id: GroupId, topic_id: TopicId) -> tuple[GroupTopic, GroupTopic]:
    return (group_id, topic_id), (group_id, state.parent_of(topic_id))


def _kept(kv: Transaction, position: int) -> memoryview | None:
    """The first record left of a chunk whose live records were copied to `kept`: chunk position [8], record."""
    found = next(kv.scan("kept", b"", U64.pack(position)), None)
    return None if found is None else found[1][U64.size :]
