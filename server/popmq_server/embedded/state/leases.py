"""Leases: the one module that writes the tables of CheckPoints and leases, and those that follow from them.

    ck, leases, subs           CheckPoints, the parts of their leases, the number of parts where there are several
    held, owned, in_flight …   numbers of leased messages, by group and topic, owner, queue, client, chunk (`hold`)
    group_pins, span_chunks …  leased messages by group and topic and chunk, and the oldest of these chunks
    attempts, session_leases   find a CheckPoint again: for a repeated Pop, for the end of a session
    loose, dead_blocked        members of owners in the retry topic; members whose dead letters find no room

loading.py counts the same at start.
"""

from collections.abc import Iterable
from typing import Any

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.state.all_tables import AllTables
from popmq_server.embedded.state.checkpoints import check_owned
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import checkpoint, sorted_numbers
from popmq_server.embedded.store.checkpoint import BACKOFF, FIFO, CheckPoint, Lease, Run
from popmq_server.embedded.store.keys import NEVER, SUB_OWNER
from popmq_server.values.handles import nonce
from popmq_server.values.ids import GroupId, GroupTopic, TopicId
from popmq_server.values.records import IN_FLIGHT_MAX, HeldNumbers

#: Chunks are sorted in spans of 4 MiB of the log: a terabyte has 262,144.
CHUNK_BITS = 22
#: CheckPoints of a session are sorted in spans of 1,024 numbers: copying such a tuple takes a microsecond, and a client
#: with a million leases has a thousand of them.
SESSION_BITS = 10


def new_checkpoint(
    tx: Tx,
    where: GroupTopic,
    kind: int,
    members: int,
    runs: Iterable[Run],
    chunks: Iterable[tuple[int, int]],
    **more: Any,
) -> CheckPoint:
    """Makes a CheckPoint with an id and a nonce of its own; `begin` stores it. `more`: its other fields."""
    ck = CheckPoint(
        ck_id=tx.next("ck_id"),
        group_id=where[0],
        topic_id=where[1],
        kind=kind,
        nonce=nonce(),
        popped_ms=tx.now_ms,
        runs=tuple(runs),
        members=members,
        chunks=tuple(chunks),
        **more,
    )
    if members < 1:
        broken("checkpoint_has_members", members=members)
    left = members
    for run in ck.runs:
        left -= run.length
        if run.length < 1:
            broken("checkpoint_runs_filled", first=run.first)
        if run.attempts < 0:
            broken("attempts_counted", first=run.first, attempts=run.attempts)
    if left:
        broken("checkpoint_counts_its_runs", members=members, more=left)
    if not ck.chunks or ck.chunks[0][0]:
        broken("checkpoint_chunks_begin", chunks=ck.chunks[:1])
    if ck.chunks[-1][0] >= members:
        broken("checkpoint_chunks_inside", chunk=ck.chunks[-1], members=members)
    if ck.message_groups and len(ck.message_groups) != members:
        broken("checkpoint_message_groups", members=members, message_groups=len(ck.message_groups))
    if ck.fair_keys and len(ck.fair_keys) != members:
        broken("checkpoint_fair_keys", members=members, fair_keys=len(ck.fair_keys))
    return ck


def begin(tx: Tx, ck: CheckPoint, due_ms: int) -> None:
    """Stores a CheckPoint, with all of its members under one lease."""
    state, bits = tx.state, ck.all_bits
    if due_ms <= tx.now_ms:
        broken("lease_ends_later", due_ms=due_ms, now_ms=tx.now_ms)
    if ck.owner_id and ck.kind == BACKOFF:
        broken("checkpoint_of_owner_never_in_backoff", owner=ck.owner_id)
    state.ck[ck.ck_id] = ck
    set_part(tx, ck, 0, Lease(due_ms, bits))
    hold(tx, ck, bits, 1)
    if ck.attempt_id:
        state.attempts[attempt_key(ck.group_id, ck.topic_id, ck.client, ck.attempt_id)] = ck.ck_id
    if ck.session:
        sorted_numbers.add(state.session_leases, state.session_spans, (ck.client,), ck.ck_id, SESSION_BITS)


def end(tx: Tx, ck: CheckPoint, sub: int, part: Lease, bits: int) -> int:
    """Members leave their part of the lease, and the last one removes the part; returns the members that stay."""
    if bits & ~part.undone:
        broken("lease_holds_what_leaves", checkpoint=ck.ck_id, part=sub, undone=part.undone, leaving=bits)
    left = part.undone & ~bits
    set_part(tx, ck, sub, part._replace(undone=left) if left else None)
    hold(tx, ck, bits, -1)
    return left


def set_part(tx: Tx, ck: CheckPoint, sub: int, part: Lease | None) -> None:
    """Puts or removes one part of a CheckPoint's lease; removing the last part removes the CheckPoint.

    `subs` counts the parts if there are several, so the check for the last part needs no scan. The whole (sub 0) is
    put first, when its CheckPoint is created; later parts are split off from others.
    """
    state, key = tx.state, (ck.ck_id, sub)
    had = key in state.leases
    if (blocked := state.dead_blocked.get(key)) is not None:
        note_dead_blocked(tx, ck, sub, blocked & part.undone if part and part.due_ms <= tx.now_ms else 0)
    if part is not None:
        _check_part(ck, sub, part)
        state.leases[key] = part
        if sub and not had:
            state.subs[ck.ck_id] = state.subs.get(ck.ck_id, 1) + 1
    elif had:
        state.leases.pop(key)
        left = state.subs.get(ck.ck_id, 1) - 1
        if left < 0:
            broken("lease_parts_counted", checkpoint=ck.ck_id, left=left)
        if left > 1:
            state.subs[ck.ck_id] = left
        elif left:
            state.subs.pop(ck.ck_id)
        else:
            _drop(tx, ck)


def _check_part(ck: CheckPoint, sub: int, part: Lease) -> None:
    """Compares a part that is about to be stored with its CheckPoint; LeaseTable does it again for what it reads."""
    if not 0 <= part.undone < 1 << ck.members:
        broken("lease_inside_members", checkpoint=ck.ck_id, undone=part.undone, members=ck.members)
    if sub and part.undone != 1 << sub - 1:
        broken("lease_part_of_a_member", checkpoint=ck.ck_id, part=sub, undone=part.undone)
    if (part.due_ms == NEVER) != (ck.owner_id > 0):
        broken("lease_deadline_of_owner", checkpoint=ck.ck_id, owner=ck.owner_id, due_ms=part.due_ms)
    if ck.owner_id:
        check_owned(part, ck)
    elif not part.undone:
        broken("lease_holds_something", checkpoint=ck.ck_id, part=sub)


def _drop(tx: Tx, ck: CheckPoint) -> None:
    tx.state.ck.pop(ck.ck_id)
    if ck.session:
        sorted_numbers.remove(tx.state.session_leases, tx.state.session_spans, (ck.client,), ck.ck_id, SESSION_BITS)
    if not ck.attempt_id:
        return
    tried = attempt_key(ck.group_id, ck.topic_id, ck.client, ck.attempt_id)
    if tx.state.attempts.get(tried) == ck.ck_id:
        tx.state.attempts.pop(tried)
    if parent := tx.state.parent_of(ck.topic_id):
        _drop_attempt(tx, attempt_key(ck.group_id, parent, ck.client, ck.attempt_id), ck.ck_id)


def _drop_attempt(tx: Tx, tried: int, ck_id: int) -> None:
    """Removes a CheckPoint from its attempt: a Pop on lite topics has one for each of them."""
    left = tuple(each for each in tx.state.lite_attempts.get(tried, ()) if each != ck_id)
    if left:
        tx.state.lite_attempts[tried] = left
    else:
        tx.state.lite_attempts.pop(tried)


def remember_attempt(tx: Tx, tried: int, ck_ids: tuple[int, ...]) -> None:
    """Notes the CheckPoints of a Pop on lite topics, for when its client repeats it. `tried`: its `attempt_key`."""
    tx.state.lite_attempts[tried] = ck_ids


def put_off(tx: Tx, key: tuple[int, int], part: Lease, due_ms: int) -> None:
    """Moves the deadline of a part whose end failed: it stays leased."""
    tx.state.leases[key] = part._replace(due_ms=due_ms)


def tear(tx: Tx, ck_id: int, member: int) -> None:
    """Marks a released member of an owner's CheckPoint as torn: another reader pops it from where it waits."""
    state, bit = tx.state, 1 << member
    part = state.leases.get((ck_id, 0))
    if part is None or not part.released & bit:
        return
    loosen(tx, state.ck[ck_id].owner_id, -1)
    state.leases[(ck_id, 0)] = part._replace(
        undone=part.undone & ~bit, released=part.released & ~bit, torn=part.torn | bit
    )


def note_dead_blocked(tx: Tx, ck: CheckPoint, sub: int, bits: int) -> None:
    """Sets the members of a part whose dead letters wait for room."""
    state, key = tx.state, (ck.ck_id, sub)
    change = bits.bit_count() - state.dead_blocked.get(key, 0).bit_count()
    if bits:
        state.dead_blocked[key] = bits
    else:
        state.dead_blocked.pop(key)
    for topic_id in filter(None, (ck.topic_id, state.parent_of(ck.topic_id))):
        where = (ck.group_id, topic_id)
        left = state.dead_blocked_count.get(where, 0) + change
        if left < 0:
            broken("dead_blocked_counted", where=where, left=left)
        if left:
            state.dead_blocked_count[where] = left
        else:
            state.dead_blocked_count.pop(where)


def keep_owner(tx: Tx, owner_id: int, due_ms: int) -> None:
    """Puts an owner's key in `due`: when something of it is next due."""
    tx.state.leases[(owner_id, SUB_OWNER)] = Lease(due_ms, 0)


def forget_owner(tx: Tx, owner_id: int) -> None:
    """Removes an owner's key in `due`."""
    tx.state.leases.pop((owner_id, SUB_OWNER))


def loosen(tx: Tx, owner_id: int, count: int) -> None:
    """Adds to the number of an owner's members in the retry topic, tied to their CheckPoint."""
    left = tx.state.loose.get(owner_id, 0) + count
    if left < 0:
        broken("owner_loose_counted", owner=owner_id, left=left)
    tx.state.loose[owner_id] = left


def hold(tx: Tx, ck: CheckPoint, bits: int, sign: int) -> None:
    """Members of `ck` come under its lease (sign 1) or leave it (sign -1): updates the numbers of leased messages.

    These are held, clients, owned, in_flight, locks and pins. No other place updates them, so they agree. Wakes a Pop
    when a full queue or a locked message group is open again, and for a lite topic, whose lock its parent's Pops see.
    """
    state, where, moved = tx.state, (ck.group_id, ck.topic_id), sign * bits.bit_count()
    queues, message_groups, chunks = ck.by_queue(bits), ck.by_message_group(bits), ck.by_chunk(bits)
    parent = state.parent_of(ck.topic_id)
    levels = (where, (ck.group_id, parent)) if parent else (where,)
    for level in levels:
        state.held[level] = shifted(state.held.get(level, HeldNumbers()), ck.kind, ck.owner_id, moved)
    if ck.kind != BACKOFF:
        _count_client(tx, (ck.group_id, ck.client), moved)
    poppable = False
    if ck.owner_id:
        _count_owned(state, ck.owner_id, moved)
    elif ck.kind != BACKOFF:
        group = state.groups.get(ck.group_id)
        limit = group.in_flight_max if group else IN_FLIGHT_MAX
        for queue, count in queues.items():
            before = state.in_flight.get((*where, queue), 0)
            if before + sign * count < 0:
                broken("queue_leases_counted", where=where, queue=queue, before=before, ended=count)
            state.in_flight[(*where, queue)] = before + sign * count
            poppable |= sign < 0 and before >= limit
    if message_groups:
        poppable |= _lock(tx, ck, message_groups, sign) or parent > 0
    if ck.fair_keys:
        poppable |= _hold_keys(state, ck, bits, sign)
    _hold_chunks(state, levels, chunks, sign)
    if poppable:
        tx.wake(*where)


def _count_owned(state: State, owner_id: int, moved: int) -> None:
    """Updates the number of messages that an owner holds."""
    owned = state.owned.get(owner_id, 0) + moved
    if owned < 0:
        broken("owner_leases_counted", owner=owner_id, left=owned)
    state.owned[owner_id] = owned


def _hold_chunks(state: State, levels: Iterable[GroupTopic], chunks: dict[int, int], sign: int) -> None:
    """Updates the numbers of leased messages by chunk, for retention and the age of the oldest lease."""
    for chunk, count in chunks.items():
        state.searched.discard(chunk)
        left = state.pins.get(chunk, 0) + sign * count
        if left < 0:
            broken("chunk_leases_counted", chunk=chunk, left=left)
        if left:
            state.pins[chunk] = left
        else:  # entries of zero would pile up
            state.pins.pop(chunk)
    for level in levels:
        _shift_group_pins(state, level, chunks, sign)


def _shift_group_pins(state: AllTables, where: GroupTopic, chunks: dict[int, int], sign: int) -> None:
    """Adds to the leased messages of a group by chunk, or with sign -1 takes them away.

    Positions in the log increase with the store time, so the lowest chunk is the oldest. The sorted chunks of a group
    are kept in spans: a tuple is copied only when chunks get their first or lose their last leased message of a group.
    """
    turned = list[int]()
    for chunk, count in chunks.items():
        key = (*where, chunk)
        before = state.group_pins.get(key, 0)
        after = before + sign * count
        if after < 0:
            broken("group_chunk_leases_counted", where=where, chunk=chunk, before=before, change=sign * count)
        if after:
            state.group_pins[key] = after
        else:
            state.group_pins.pop(key)
        if not before or not after:
            turned.append(chunk)
    if turned:
        change = sorted_numbers.add_all if sign > 0 else sorted_numbers.remove_all
        change(state.span_chunks, state.spans, where, turned, CHUNK_BITS)


def _count_client(tx: Tx, key: tuple[int, str], moved: int) -> None:
    """Updates the number of messages leased to one client of a group; drops an entry of zero, as clients leave."""
    left = tx.state.clients.get(key, 0) + moved
    if left < 0:
        broken("client_leases_counted", group=key[0], left=left)
    if left:
        tx.state.clients[key] = left
    else:
        tx.state.clients.pop(key)


def _lock(tx: Tx, ck: CheckPoint, message_groups: dict[bytes, int], sign: int) -> bool:
    """FIFO: a message group is locked while any member of it is under a lease. Returns whether one is ready now."""
    group_id, topic_id, locks, waiting = ck.group_id, ck.topic_id, tx.state.locks, tx.state.waiting
    ready = False
    for message_group, count in message_groups.items():
        key = (group_id, topic_id, message_group)
        before = locks.get(key)
        left = sign * count + (before[0] if before else 0)
        if left < 0:
            broken("message_group_leases_counted", group=group_id, topic=topic_id, left=left)
        if before and sign > 0 and before[1:] != (ck.owner_id, ck.part):
            broken("message_group_has_one_reader", group=group_id, topic=topic_id, before=before, owner=ck.owner_id)
        if before and sign > 0 and ck.kind == FIFO and not ck.owner_id:
            broken("message_group_was_free", group=group_id, topic=topic_id, before=before)
        if left:
            locks[key] = (left, ck.owner_id, ck.part)
        else:
            locks.pop(key)
        ready |= key in waiting and tx.state.ready_groups.judge(key)
    return ready


def _hold_keys(state: State, ck: CheckPoint, bits: int, sign: int) -> bool:
    """Updates the leased messages of fair keys. Returns whether a key that was at its limit may go again."""
    where = (ck.group_id, ck.topic_id)
    index = state.fair_indexes.get(where) if sign < 0 else None
    freed = False
    for key, count in ck.by_fair_key(bits).items():
        left = state.key_leases.get((*where, key), 0) + sign * count
        if left < 0:
            broken("fair_key_leases_counted", where=where, left=left)
        if left:
            state.key_leases[(*where, key)] = left
        else:
            state.key_leases.pop((*where, key))
        freed |= index is not None and index.free(key)
    return freed


def shifted(held: HeldNumbers, kind: int, owner_id: int, count: int) -> HeldNumbers:
    """`held` plus `count` (may be negative) members of a CheckPoint."""
    ordinary, owned, backoff = held
    if owner_id:
        if owned + count < 0:
            broken("owned_counted", before=owned, change=count)
        return HeldNumbers(ordinary, owned + count, backoff)
    if kind == BACKOFF:
        if backoff + count < 0:
            broken("backoff_counted", before=backoff, change=count)
        return HeldNumbers(ordinary, owned, backoff + count)
    if ordinary + count < 0:
        broken("leased_counted", before=ordinary, change=count)
    return HeldNumbers(ordinary + count, owned, backoff)


def attempt_key(group_id: int, topic_id: int, client: str, attempt_id: str) -> int:
    """The key that finds the CheckPoint of a repeated Pop. Keys may collide, so callers compare the texts.

    A hash takes less memory than the texts: each lease of the SDK has a key. It covers the texts as stored, so the scan
    at start does not parse them.
    """
    return hash((group_id, topic_id, checkpoint.texts_of(attempt_id, client, "")))


def tried(state: State, group_id: GroupId, topic_id: TopicId, client: str, attempt_id: str) -> CheckPoint | None:
    """The CheckPoint of a Pop that a client repeats, or None. For LITE topics see lite_pop.py."""
    ck_id = state.attempts.get(attempt_key(group_id, topic_id, client, attempt_id))
    ck = None if ck_id is None else state.ck.get(ck_id)
    asked = (group_id, topic_id, client, attempt_id)
    return ck if ck is not None and (ck.group_id, ck.topic_id, ck.client, ck.attempt_id) == asked else None


def of_session(state: State, client: str, after: int, most: int) -> list[int]:
    """At most `most` ids, after `after`, of the CheckPoints that are bound to a client's session."""
    return sorted_numbers.after(state.session_leases, state.session_spans, (client,), after, SESSION_BITS, most)


def oldest_chunk(state: State, where: GroupTopic) -> int | None:
    """The chunk of the oldest message that a group has under a lease in a topic, for a LITE topic in any of its lite
    topics; None if there is none. No walk over the leases.
    """
    spans = state.spans.get(where)
    return state.span_chunks[(*where, spans[0])][0] if spans else None


def parts(tx: Tx, ck: CheckPoint) -> list[tuple[int, Lease]]:
    """(sub, part) of each part of a CheckPoint's lease; usually there is one."""
    if ck.ck_id not in tx.state.subs and (whole := tx.state.leases.get((ck.ck_id, 0))):
        return [(0, whole)]
    found = ((sub, tx.state.leases.get((ck.ck_id, sub))) for sub in range(ck.members + 1))
    return [(sub, part) for sub, part in found if part is not None]


def undone(tx: Tx, ck: CheckPoint) -> int:
    """The bits of all undone members of a CheckPoint, in any part of its lease."""
    return sum(part.undone for _, part in parts(tx, ck))
