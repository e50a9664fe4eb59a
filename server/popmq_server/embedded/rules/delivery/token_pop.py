"""Pops with a token of an owner, and how much there is to read: see owner.py.

    a new token      seal      binds the messages that it takes, perhaps none, and stores the token before the answer
    a known token    replay    the members of the first answer that are not done, in its order

Both renew the owner's lease.
"""

import itertools

from popmq_server.contract.commands import Available, Pop, PopToken, Position, Ready
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import deadletter, invalidated
from popmq_server.embedded.rules.delivery.fair import choice
from popmq_server.embedded.rules.delivery.fifo_pick import FifoPick
from popmq_server.embedded.rules.delivery.owner import bind_again, find_owner
from popmq_server.embedded.rules.delivery.pick import Bounds, Pick
from popmq_server.embedded.rules.delivery.pop import (
    IN_FLIGHT_RETRY_MS,
    choose,
    lease,
    plain_picking,
    queues_of,
    read_members,
)
from popmq_server.embedded.rules.delivery.subscription import (
    ALL_QUEUES,
    bind,
    expect_mode,
    filter_for,
    note_read,
    resolve,
    subscribe,
)
from popmq_server.embedded.rules.topics import quotas, readers
from popmq_server.embedded.state import owners
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    NEVER,
    RQ_KEY,
    STAT_KEY,
    U64,
    hash16,
)
from popmq_server.errors import Refused
from popmq_server.values import permission
from popmq_server.values.filters import filter as filters
from popmq_server.values.filters.filter import Filter
from popmq_server.values.ids import GroupTopic
from popmq_server.values.leased import Leased
from popmq_server.values.records import (
    Group,
    Owner,
    Stat,
    Token,
    Topic,
)

#: Messages that one owner holds at most.
OWNED_MAX = 1_000_000


def pop(tx: Tx, command: Pop, ask: PopToken) -> Leased:
    """The set of a token: sealed now, or as an earlier Pop sealed it, without done, torn and unreadable members.

    Every accepted Pop of the current generation also renews the owner's lease.
    """
    group, topic = resolve(tx, command.topic, command.group)
    if ask.topic_id and ask.topic_id != topic.topic_id:
        raise _replaced(topic)
    queues_of(topic, command.queues)
    permission.check_read(group, topic)
    expect_mode(tx, group, topic, "POP")
    choice.refuse_owners(tx, group, topic)
    _, owner = find_owner(tx, command.group, ask.owner, ask.generation, ask.reach)
    if ask.epoch <= owner.acked_epoch:
        raise Refused(
            "EPOCH_ALREADY_ACKED",
            f"epoch {ask.epoch} of owner {ask.owner!r} is finished, up to {owner.acked_epoch}",
            field="token.epoch",
            action="continue with a later epoch: another reader finished this one, or this reader was rolled back",
        )
    key = (group.group_id, topic.topic_id, hash16(ask.owner, ask.epoch, ask.part, ask.chunk))
    known = tx.state.tokens.get(key)
    wanted = filters.EVERYTHING  # a known token keeps its set, also when the group's filter has changed
    if known is None:
        _check_limits(tx, command, ask, group, topic, owner)
        if topic.topic_id not in owner.topics:
            owner = owner._replace(topics=(*owner.topics, topic.topic_id))
        wanted = subscribe(tx, group, topic, command.filter)
    note_read(tx, (group.group_id, topic.topic_id), command.queues or (ALL_QUEUES,))
    until_ms = max(owner.lease_until_ms, tx.now_ms + (command.invisible_ms or group.invisible_ms))
    owner = owners.put(tx, owner._replace(lease_until_ms=until_ms, last_seen_ms=tx.now_ms, released=False))
    if known is not None:
        return _replay(tx, owner, key, known)
    return _seal(tx, command, ask, group, topic, owner, key, wanted)


def _replaced(topic: Topic) -> Refused:
    return Refused(
        "TOPIC_NOT_FOUND",
        f"topic {topic.name!r} was deleted and created again since this epoch was planned",
        field="token.topic_id",
        action="plan a later epoch, with the id that the topic has now",
    )


def _replay(tx: Tx, owner: Owner, key: owners.TokenKey, token: Token) -> Leased:
    """The undone members in the order of the first answer; attempts do not increase."""
    if not token.ck_id:
        sealed = (token.members, token.end, 0, token.members)  # `members` > 0: its topic was purged
        return Leased(
            rows=[],
            ck_id=0,
            nonce=0,
            popped_ms=tx.now_ms,
            due_ms=owner.lease_until_ms,
            rest=0,
            replay=True,
            sealed=sealed,
        )
    ck, part = owners.checkpoint_of(tx, key, token), tx.state.leases.get((token.ck_id, 0))
    if token.owner_id != owner.owner_id:
        broken("token_has_its_owner", owner=owner.owner_id, stored=token.owner_id, epoch=token.epoch)
    if ck is None or part is None:
        broken("sealed_set_has_its_lease", owner=owner.owner_id, epoch=token.epoch, checkpoint=token.ck_id)
    if part.released:
        part = bind_again(tx, ck, part)
    rows, lost = read_members(tx, ck, part.undone)
    return Leased(
        rows=rows,
        ck_id=ck.ck_id,
        nonce=ck.nonce,
        popped_ms=ck.popped_ms,
        due_ms=owner.lease_until_ms,
        rest=0,
        replay=True,
        sealed=(token.members, token.end, part.torn.bit_count(), lost),
    )


def _seal(
    tx: Tx,
    command: Pop,
    ask: PopToken,
    group: Group,
    topic: Topic,
    owner: Owner,
    key: tuple[int, int, bytes],
    wanted: Filter,
) -> Leased:
    """The first Pop of a token: binds the messages that it takes, perhaps none, before it is answered.

    It stores the token even when it took nothing. A sink may have recorded the epoch as done with an empty part; if a
    repeat filled that part, the sink would skip its rows and then ack them, so they would be lost.
    """
    others = tx.state.owner_tokens.get(owner.owner_id, ())
    queues = queues_of(topic, command.queues)
    room = _room(tx, command, ask, topic, others)
    allowed = quotas.pop_room(tx, group, topic)
    places = OWNED_MAX - tx.state.owned.get(owner.owner_id, 0)
    places = places if allowed is None else min(places, allowed)
    bounds = Bounds(min(room, places), command.max_bytes, ask.upto, owner.owner_id, wanted)
    pick = plain_picking(topic)(tx, group, topic, bounds)
    if isinstance(pick, FifoPick):
        pick.part = ask.part
    choose(pick, queues, None)
    if pick.no_room and not pick.rows:
        raise pick.no_room
    pick.apply()
    quotas.popped(tx, group, topic, len(pick.rows))
    share_is_full = ask.share and len(pick.rows) == room and room < command.max_messages
    end = bool(share_is_full) or at_end(pick, queues)
    ck_id = nonce = 0
    if pick.rows:
        ck = lease(tx, pick, NEVER, command.client_id, "", owner.owner_id)
        ck_id, nonce = ck.ck_id, ck.nonce
    token = Token(
        owner_id=owner.owner_id,
        epoch=ask.epoch,
        part=ask.part,
        chunk=ask.chunk,
        ck_id=ck_id,
        members=len(pick.rows),
        end=end,
    )
    owners.seal(tx, key, token)
    return Leased(
        rows=pick.rows,
        ck_id=ck_id,
        nonce=nonce,
        popped_ms=tx.now_ms,
        due_ms=owner.lease_until_ms,
        rest=pick.rest(tuple(queues)),
        sealed=(len(pick.rows), end, 0, 0),
    )


def _check_limits(tx: Tx, command: Pop, ask: PopToken, group: Group, topic: Topic, owner: Owner) -> None:
    """Raises Refused when the owner holds OWNED_MAX messages, or when there are messages to take but no quota.

    Not for a token whose share is taken: a reader whose owner is full must learn that its share has ended.
    """
    owned, others = tx.state.owned.get(owner.owner_id, 0), tx.state.owner_tokens.get(owner.owner_id, ())
    if owned >= OWNED_MAX and _room(tx, command, ask, topic, others):
        raise Refused(
            "IN_FLIGHT_LIMIT",
            f"owner {ask.owner!r} holds {owned} messages",
            action="ack an epoch of this owner first (in Python: client.owners.ack_up_to)",
            retry_after_ms=IN_FLIGHT_RETRY_MS,
        )
    if quotas.pop_room(tx, group, topic) == 0:
        where = (group.group_id, topic.topic_id)
        stat = tx.state.stat.get(where, Stat())
        left = tx.state.total.get(topic.topic_id, 0) - tx.state.passed.get(where, 0) + stat.retry + stat.waiting
        if left and _room(tx, command, ask, topic, others):
            raise quotas.no_quota(tx, group, topic)


def _room(tx: Tx, command: Pop, ask: PopToken, topic: Topic, others: tuple[tuple[int, int, bytes], ...]) -> int:
    """How many messages a new token may take, within the rest of its share."""
    room = command.max_messages
    if ask.share:
        sealed = (tx.state.tokens[other] for other in others if other[1] == topic.topic_id)
        used = sum(token.members for token in sealed if (token.epoch, token.part) == (ask.epoch, ask.part))
        room = min(room, max(0, ask.share - used))
    return room


def at_end(pick: Pick, queues: range | tuple[int, ...]) -> bool:
    """Whether an applied pick left nothing below `upto` in its queues and in the retry topic.

    The owner's own entries in the retry topic do not count: their own tokens return them, not this one.
    """
    state, where = pick.tx.state, (pick.group.group_id, pick.topic.topic_id)
    if invalidated.hides(state, where):
        return False
    for queue in queues:
        stop = state.queue_max.get((pick.topic.topic_id, queue), 0)
        if pick.upto is not None:
            stop = min(stop, pick.upto.queues.get(queue, 0))
        if state.poff.get((*where, queue), 0) < stop:
            return False
    return not pick.more_retries()


def retries_below(tx: Tx, where: GroupTopic, upto: Position | None) -> int:
    """Retry entries of a group in a topic with numbers below `upto`'s."""
    total = tx.state.stat[where].retry
    if upto is None or not total:
        return total
    prefix = STAT_KEY.pack(*where)
    last = tx.kv.last("rq", prefix)
    if last is not None and RQ_KEY.unpack(last[0])[2] < upto.retry:
        return total
    stop = prefix + U64.pack(upto.retry)
    return sum(1 for _ in itertools.takewhile(lambda entry: entry[0] < stop, tx.kv.scan("rq", prefix)))


def available(tx: Tx, command: Available) -> Ready:
    """(messages deliverable now below `upto`, the present end as the position of a bounded read, the topic's id)."""
    group, topic = resolve(tx, command.topic, command.group)
    permission.check_read(group, topic)
    if command.filter is not None:
        filter_for(tx, group, topic, command.filter)
    bind(tx, group, topic)
    state, where = tx.state, (group.group_id, topic.topic_id)
    ready, queues = retries_below(tx, where, command.upto) + state.ready_groups.count(where), {}
    for queue in range(topic.queues):
        queues[queue] = stop = state.queue_max.get((topic.topic_id, queue), 0)
        least = state.queue_min.get((topic.topic_id, queue), 0)
        if command.upto is not None:
            stop = min(stop, command.upto.queues.get(queue, 0))
        ready += max(0, stop - max(least, state.poff.get((*where, queue), least)))
    if group.fair_keys is not None:
        ready -= sum(readers.taken_ahead(state, (*where, queue)) for queue in queues)
    ready -= deadletter.gone_ahead(tx, where, command.upto)
    return Ready(ready, Position(queues, state.counters[""].rseq), topic.topic_id)
