"""Operations on leases: ack, extend, release, reject.

A handle names member i of a CheckPoint. The member is under sub i + 1 when its lease was changed alone, else it is bit
i of sub 0. An ack is valid while the member is undone, even a little after its due time: the writer runs acks and the
revive one after the other, so exactly one of them wins. A late ack gets HANDLE_LAPSED and changes nothing.

    ack      sets the bit; the last bit of a part writes `hist`; the end of the last part removes the CheckPoint.
             Results are stored first (results/stored.py): their ids are those of leased messages
    extend   all undone members: moves the part's key. Some of them: each gets a key of its own, same handle
    release  the member leaves. No attempt left: dead letter. Delay 0: retry topic. Another delay, or the group's
             backoff if the request names none: a CheckPoint of kind backoff, for which no handle exists, holds it
    snooze   a release that counts no attempt, at most `snoozes_max` times for a message; a further one counts
    reject   moves the member to the dead letter topic at once

Entries of one request that name the same part and make the same change are applied together.

See docs/decisions/0006-checkpoints.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

from popmq_server.contract.commands import Ack, Acked, Change, Changed, ChangeInvisibleTime, GivenResult, Settle
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import (
    deadletter,
    fifo,
    invalidated,
    lease_history,
)
from popmq_server.embedded.rules.delivery.retry import go_back
from popmq_server.embedded.rules.results import stored
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.space import MOVE, entries_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import SNOOZED_ONCE, CheckPoint, exhausted, followers, heads, members_of
from popmq_server.errors import (
    Later,
    Refused,
    bad_handle,
    group_not_found,
    invalid,
    lapsed,
)
from popmq_server.values.handles import (
    Handle,
    each_handle,
    read_handle,
    read_handles,
)
from popmq_server.values.message import REASON_BYTES_MAX
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import Group

#: Moves that one command makes in a commit, of some 20 µs each.
MOVES_MAX = 500
#: The moves that a change of one member counts as: a dead letter takes longer than a release.
MOVES = {"extend": 0, "release": 1, "reject": 2}
#: The reason of a message that was snoozed without one.
SNOOZED = "snoozed"


class FoundMember(NamedTuple):
    """An undone member and its part of the CheckPoint's lease."""

    ck: CheckPoint
    sub: int
    bit: int


def find(tx: Tx, group: Group, handle: Handle, field: str) -> FoundMember:
    """The member that a handle names, or Refused.

    Order of the checks: the CheckPoint is finished; the handle is not of this broker; not of this group; the topic is
    gone; the member is void; done or released.
    """
    ck = tx.state.ck.get(handle.ck_id)
    given = tx.state.counters[""].ck_id
    if ck is None and handle.ck_id < given:
        raise lapsed(field)
    if ck is not None and ck.ck_id >= given:
        broken("checkpoint_number_given", checkpoint=ck.ck_id, next=given)
    if ck is None or ck.nonce != handle.nonce or handle.member >= ck.members:
        raise bad_handle(field, "this broker did not issue this handle")
    if ck.group_id != group.group_id:
        raise bad_handle(field, f"this delivery belongs to another group than {group.name!r}")
    bit = 1 << handle.member
    if not tx.state.alive(ck.topic_id):  # deleted or purged: its data is being removed
        raise lapsed(field)
    if invalidated.of_checkpoint(tx.state, ck) & bit:
        raise lapsed(field)
    whole = tx.state.leases.get((ck.ck_id, 0))
    if whole is not None and whole.undone & ~whole.released & bit:
        return FoundMember(ck, 0, bit)
    if (ck.ck_id, handle.member + 1) in tx.state.leases:
        return FoundMember(ck, handle.member + 1, bit)
    raise lapsed(field)


def ack(tx: Tx, command: Ack) -> Acked:
    """Acks deliveries; the answer has one entry for each handle."""
    group = readers.group(tx, command.group)
    if group is None:
        raise group_not_found(command.group)
    if command.results:
        stored.check_kept(group)
    handles = read(command.handles)
    results: list[Refused | None] = [None] * len(handles)
    found = together(tx, group, handles)
    if found is None:
        results, done = _one_by_one(tx, group, handles)
        parts = [(tx.state.ck[ck_id], sub, bits) for (ck_id, sub), bits in done.items()]
    else:
        bits_of, cks = found
        parts = [(ck, 0, bits_of[ck_id]) for ck_id, ck in cks.items()]
    if command.results:
        stored.store(tx, group, records_of(tx, handles, command.results, results))
    topics: dict[str, int] = {}
    for ck, sub, bits in parts:
        finish(tx, ck, sub, bits)
        if topic := tx.state.topics.get(ck.topic_id):
            topics[topic.name] = topics.get(topic.name, 0) + bits.bit_count()
    return Acked(results, topics)


def records_of(
    tx: Tx, handles: Sequence[Handle | Refused], given: Sequence[GivenResult], refused: Sequence[Refused | None] = ()
) -> tuple[Outgoing, ...]:
    """The records of results of deliveries that are still leased, without those whose entry is refused."""
    by_ck: dict[int, dict[int, GivenResult]] = {}
    for each in given:
        at = handles[each.handle]
        if isinstance(at, Handle) and (not refused or refused[each.handle] is None):
            by_ck.setdefault(at.ck_id, {})[at.member] = each
    return stored.records(tx, [(tx.state.ck[ck_id], members) for ck_id, members in by_ck.items()])


class PlainAcks(NamedTuple):
    """Deliveries of one topic that can be acked together: by CheckPoint the members, as bits."""

    bits_of: dict[int, int]
    cks: dict[int, CheckPoint]
    topic: str


def plain_acks(tx: Tx, commands: Sequence[Ack | Settle]) -> PlainAcks | None:
    """What several commands of one group ack.

    None if a handle is not valid, its lease was changed alone, or the topics differ: the caller then runs each command
    by itself.
    """
    group = readers.group(tx, commands[0].group)
    given = [handle for command in commands for handle in command.handles]
    found = None if group is None else together(tx, group, read(given))
    if found is None or len(topics := {ck.topic_id for ck in found[1].values()}) != 1:
        return None
    return PlainAcks(*found, tx.state.topics[topics.pop()].name)


def finish_all(tx: Tx, acks: PlainAcks) -> None:
    """Acks these deliveries."""
    for ck_id, ck in acks.cks.items():
        finish(tx, ck, 0, acks.bits_of[ck_id])


def ack_all(tx: Tx, commands: Sequence[Ack]) -> list[Acked] | None:
    """Acks the deliveries of several commands of one group, or returns None and changes nothing (`plain_acks`)."""
    if (acks := plain_acks(tx, commands)) is None:
        return None
    finish_all(tx, acks)
    return [Acked([None] * len(command.handles), {acks.topic: len(command.handles)}) for command in commands]


def read(texts: Sequence[str]) -> Sequence[Handle | Refused]:
    """The handles of a request, decoded all at once if all are valid."""
    return read_handles(texts) or each_handle(texts)


def together(
    tx: Tx, group: Group, handles: Sequence[Handle | Refused]
) -> tuple[dict[int, int], dict[int, CheckPoint]] | None:
    """The members that the handles name, as bits by the id of their CheckPoint; and the CheckPoints.

    None unless `find` would find each member in part 0 of its lease.

    A batch has few CheckPoints. So the loop over the handles only compares numbers, and the checks that do not depend
    on the member follow, once for each CheckPoint. Nothing is written before all of them have passed, so that the
    caller can still run each command by itself.
    """
    found: dict[int, int] = {}
    cks: dict[int, CheckPoint] = {}
    for handle in handles:
        if isinstance(handle, Refused):
            return None
        ck_id, member, nonce = handle
        ck = cks.get(ck_id)
        if ck is None:
            if (ck := tx.state.ck.get(ck_id)) is None:
                return None
            cks[ck_id], found[ck_id] = ck, 0
        if nonce != ck.nonce or member >= ck.members:
            return None
        found[ck_id] |= 1 << member
    if sum(map(int.bit_count, found.values())) != len(handles):
        return None  # a handle occurs twice
    for ck_id, bits in found.items():
        ck, whole = cks[ck_id], tx.state.leases.get((ck_id, 0))
        if ck.group_id != group.group_id or not tx.state.alive(ck.topic_id):
            return None
        if whole is None or bits & ~(whole.undone & ~whole.released) or invalidated.of_checkpoint(tx.state, ck) & bits:
            return None
    return found, cks


def _one_by_one(
    tx: Tx, group: Group, handles: Sequence[Handle | Refused]
) -> tuple[list[Refused | None], dict[tuple[int, int], int]]:
    """The result of each handle, and the members by part, as bits."""
    results: list[Refused | None] = []
    done: dict[tuple[int, int], int] = {}
    for index, handle in enumerate(handles):
        try:
            if isinstance(handle, Refused):
                raise handle
            found = find(tx, group, handle, f"handles[{index}]")
            key = (found.ck.ck_id, found.sub)
            if done.get(key, 0) & found.bit:
                raise lapsed(f"handles[{index}]")
            done[key] = done.get(key, 0) | found.bit
            results.append(None)
        except Refused as refused:
            results.append(refused)
    return results, done


def finish(tx: Tx, ck: CheckPoint, sub: int, bits: int) -> None:
    """Marks members as done and moves the counters; the last one ends the lease and writes its history row.

    An owner's CheckPoint stays, empty or not, until AckUpTo: a repeated Pop of its token still needs it.
    """
    part = tx.state.leases[(ck.ck_id, sub)]
    if bits & ~part.undone:
        broken("lease_holds_what_leaves", checkpoint=ck.ck_id, part=sub, undone=part.undone, leaving=bits)
    leases.hold(tx, ck, bits, -1)
    readers.count(tx, (ck.group_id, ck.topic_id), acked=bits.bit_count())
    left = part.undone & ~bits
    if left or ck.owner_id:
        leases.set_part(tx, ck, sub, part._replace(undone=left))
    else:
        lease_history.write(tx, ck, part._replace(undone=0), sub, lease_history.ACKED)
        leases.set_part(tx, ck, sub, None)


def change(tx: Tx, command: ChangeInvisibleTime) -> list[Changed | Refused]:
    """Extends, releases or rejects deliveries; applies equal changes of one CheckPoint part together.

    Releases and rejections beyond MOVES_MAX get Later: the broker runs them again. The releases of a message group are
    not split: once its first message is released, those after it are, too.
    """
    group = readers.group(tx, command.group)
    if group is None:
        raise group_not_found(command.group)
    results: list[Changed | Refused] = []
    moves, begun, put_off = 0, set[bytes](), set[bytes]()
    wanted: dict[tuple[object, ...], tuple[Change, list[tuple[int, FoundMember]]]] = {}
    seen: set[tuple[int, int]] = set()
    for index, entry in enumerate(command.changes):
        results.append(Changed(0, False))
        try:
            if isinstance(entry, Refused):
                raise entry
            field = f"changes[{index}].handle"
            handle, cost = read_handle(entry.handle, field), MOVES[entry.kind]
            if moves >= MOVES_MAX and _waits(tx, handle, cost, begun, put_off):
                raise Later
            found = find(tx, group, handle, field)
            check_free(found, field)
            if (found.ck.ck_id, found.bit) in seen:
                raise twice(field)
            seen.add((found.ck.ck_id, found.bit))
            moves += cost
            if entry.snooze:
                entry = snoozed(group, entry, found)
            if found.ck.message_groups and entry.kind == "release":
                begun.add(found.ck.message_groups[handle.member])
            wanted.setdefault((found.ck.ck_id, found.sub, *entry[1:]), (entry, []))[1].append((index, found))
        except Refused as refused:
            results[index] = refused
    for alike, founds in wanted.values():
        _apply(tx, group, alike, founds, results)
    return results


def snoozed(group: Group, entry: Change, found: FoundMember) -> Change:
    """The release that a snooze of this member is: uncounted, until the message was snoozed as often as it may be."""
    if found.ck.snoozes_of(found.bit.bit_length() - 1) < group.snoozes_max:
        return entry._replace(uncounted=True, reason=entry.reason or SNOOZED)
    why = f"snoozed {group.snoozes_max} times, as often as its group allows"
    reason = f"{why}: {entry.reason}" if entry.reason else why
    return entry._replace(snooze=False, reason=reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore"))


def check_free(found: FoundMember, field: str) -> None:
    """Refuses to change what an owner holds."""
    if found.ck.owner_id:
        raise invalid(
            "an owner holds this message",
            field=field,
            action="settle it through its owner (in Python: client.owners.ack_up_to, client.owners.release)",
        )


def twice(field: str) -> Refused:
    """The refusal of a second entry for one delivery."""
    return invalid("this handle occurs twice in the request", field=field, action="send each handle once")


def _waits(tx: Tx, handle: Handle, cost: int, begun: set[bytes], put_off: set[bytes]) -> bool:
    """Whether an entry waits for the next commit; if so, all later entries of its message group do (`put_off`)."""
    ck = tx.state.ck.get(handle.ck_id)
    groups = ck.message_groups if ck is not None else ()
    message_group = groups[handle.member] if handle.member < len(groups) else b""
    waits = message_group in put_off or (cost > 0 and message_group not in begun)
    if waits and message_group:
        put_off.add(message_group)
    return waits


def _apply(
    tx: Tx, group: Group, entry: Change, founds: list[tuple[int, FoundMember]], results: list[Changed | Refused]
) -> None:
    """Applies one kind of change to members of one part of one CheckPoint and fills in their results.

    A member that must become a dead letter gets Later when this transaction has written enough of them: the broker
    runs it again. It is refused when the store has no room for it.
    """
    if founds[0][1].ck.message_groups:
        held = still_held(tx, founds)
        for index in {index for index, _ in founds} - {index for index, _ in held}:
            results[index] = lapsed(f"changes[{index}].handle")
        founds = held
    if entry.kind != "extend":
        founds = may_leave(tx, group, entry, founds, results)
    for index, result in (carry_out(tx, group, entry, founds) if founds else {}).items():
        results[index] = result


def carry_out(tx: Tx, group: Group, entry: Change, founds: list[tuple[int, FoundMember]]) -> dict[int, Changed]:
    """Makes one kind of change to held members of one part of a CheckPoint; returns the results by entry."""
    ck, sub = founds[0][1].ck, founds[0][1].sub
    bits = sum(found.bit for _, found in founds)
    if entry.kind == "extend":
        visible_ms = _extend(tx, ck, sub, bits, entry.delay_ms or 0)
        return {index: Changed(visible_ms, False) for index, _ in founds}
    if entry.kind == "reject":
        part = tx.state.leases[(ck.ck_id, sub)]
        lease_history.leave(tx, ck, sub, bits)
        deadletter.dead_letter(tx, ck, bits, entry.reason, part, lease_history.REJECTED)
        return {index: Changed(tx.now_ms, True) for index, _ in founds}
    return _release(tx, group, entry, ck, sub, bits, founds)


def may_leave(
    tx: Tx, group: Group, entry: Change, founds: list[tuple[int, FoundMember]], results: list[Changed | Refused]
) -> list[tuple[int, FoundMember]]:
    """The members that may leave their lease now, by room and dead letter budget; refuses the others.

    When the head of a released message group must become a dead letter but may not yet, the message group stays.
    """
    if not founds:
        return founds
    if not tx.room.has(MOVE, entries_bytes(len(founds), entry.reason)):
        for index, _ in founds:
            results[index] = tx.room.refusal()
        return []
    ck, bits = founds[0][1].ck, sum(found.bit for _, found in founds)
    dying = bits
    if entry.kind != "reject":
        tried = heads(ck, bits) if ck.message_groups else bits
        stops = entry.uncounted or (ck.message_groups and group.stop_on_failure)
        dying = 0 if stops else exhausted(ck, tried, group.max_attempts)
    budget = deadletter.budget(tx)
    staying = dying & ~budget.fitting(ck, dying) if dying else 0
    if not staying:
        return founds
    ordered = ck.message_groups if entry.kind != "reject" else ()
    locked = {ordered[member] for member in members_of(staying)} if ordered else set()
    refused = budget.refusal()
    going: list[tuple[int, FoundMember]] = []
    for index, found in founds:
        if found.bit & staying or (locked and ordered[found.bit.bit_length() - 1] in locked):
            results[index] = refused
        else:
            going.append((index, found))
    return going


def _extend(tx: Tx, ck: CheckPoint, sub: int, bits: int, invisible_ms: int) -> int:
    """Extends members. Extending all undone members moves one small key; extending some splits off each of them.

    Extending all members of a session lease splits them off, too: they have their own deadlines from here on.
    """
    due_ms = tx.now_ms + invisible_ms
    part = tx.state.leases[(ck.ck_id, sub)]
    renewed = part.renewed(tx.now_ms, due_ms)
    if part.undone == bits and (sub or not ck.session):
        leases.set_part(tx, ck, sub, renewed)
        return due_ms
    for member in members_of(bits):
        leases.set_part(tx, ck, member + 1, renewed._replace(undone=1 << member))
    left = part.undone & ~bits
    if not left and part.undone != ck.all_bits:
        lease_history.write(tx, ck, part._replace(undone=bits), sub, lease_history.ACKED)  # of members done before
    leases.set_part(tx, ck, sub, part._replace(undone=left) if left else None)
    return due_ms


def _release(
    tx: Tx, group: Group, entry: Change, ck: CheckPoint, sub: int, bits: int, founds: list[tuple[int, FoundMember]]
) -> dict[int, Changed]:
    """Moves members without an attempt left to the dead letter topic, the others to backoff or the retry topic."""
    if ck.message_groups:
        return _release_in_order(tx, group, entry, ck, sub, bits, founds)
    dead = 0 if entry.uncounted else exhausted(ck, bits, group.max_attempts)
    part = tx.state.leases[(ck.ck_id, sub)]
    lease_history.leave(tx, ck, sub, bits)
    if dead:
        deadletter.dead_letter(tx, ck, dead, entry.reason or "no attempts left", part)
    outcome = {index: Changed(tx.now_ms, True) for index, found in founds if found.bit & dead}
    by_delay: dict[int, int] = {}
    for index, found in founds:
        if found.bit & dead:
            continue
        delay_ms = _delay_ms(group, entry, ck, found.bit)
        by_delay[delay_ms] = by_delay.get(delay_ms, 0) | found.bit
        outcome[index] = Changed(tx.now_ms + delay_ms, False)
    for delay_ms, chosen in by_delay.items():
        back_ms = tx.now_ms + delay_ms if delay_ms else 0
        lease_history.write_members(tx, ck, chosen, part, lease_history.RELEASED, entry.reason, back_ms)
        go_back(tx, ck, chosen, delay_ms, entry.reason, uncounted=entry.uncounted, snoozed=entry.snooze * SNOOZED_ONCE)
    return outcome


def _delay_ms(group: Group, entry: Change, ck: CheckPoint, bit: int) -> int:
    """The delay of a release, else the group's backoff for the attempts of the member."""
    return group.backoff_ms(ck.attempts_of(bit.bit_length() - 1)) if entry.delay_ms is None else entry.delay_ms


def still_held(tx: Tx, founds: list[tuple[int, FoundMember]]) -> list[tuple[int, FoundMember]]:
    """The members that earlier entries of the request did not release with their message group."""
    held = []
    for index, found in founds:
        part = tx.state.leases.get((found.ck.ck_id, found.sub))
        if part is not None and part.undone & found.bit:
            held.append((index, found))
    return held


def _release_in_order(
    tx: Tx, group: Group, entry: Change, ck: CheckPoint, sub: int, bits: int, founds: list[tuple[int, FoundMember]]
) -> dict[int, Changed]:
    """FIFO: the first member of each message group failed; the later ones in the lease wait again, uncounted.

    A failed member without an attempt left becomes a dead letter, and the client keeps the later members before the
    next one that it released. In a group that stops on failure it waits at the front until an operator resumes it.
    """
    failed = heads(ck, bits)
    dead = 0 if entry.uncounted else exhausted(ck, failed, group.max_attempts)
    stopped = dead if group.stop_on_failure else 0
    dead &= ~stopped
    later = (followers(ck, leases.undone(tx, ck), bits & ~dead) | bits) & ~failed
    lease = tx.state.leases[(ck.ck_id, sub)]
    for part_sub, part in leases.parts(tx, ck):
        if leaving := part.undone & (failed | later):
            lease_history.leave(tx, ck, part_sub, leaving)
    reason = entry.reason or "no attempts left"
    if dead:
        deadletter.dead_letter(tx, ck, dead, reason, lease)
    lease_history.write_members(tx, ck, stopped, lease, lease_history.RELEASED, entry.reason)
    lease_history.write_members(tx, ck, later, lease, lease_history.RELEASED, fifo.FOLLOWER)
    fifo.put_back(tx, ck, later | stopped, reason, stopped, stopped=stopped, followers=later)
    outcome = {index: Changed(tx.now_ms, bool(found.bit & dead)) for index, found in founds}
    for index, found in founds:
        if found.bit & failed & ~(dead | stopped):
            delay_ms = _delay_ms(group, entry, ck, found.bit)
            once = entry.snooze * SNOOZED_ONCE
            back_ms = go_back(tx, ck, found.bit, delay_ms, entry.reason, uncounted=entry.uncounted, snoozed=once)
            lease_history.write_members(tx, ck, found.bit, lease, lease_history.RELEASED, entry.reason, back_ms)
            outcome[index] = Changed(back_ms, False)
    return outcome
