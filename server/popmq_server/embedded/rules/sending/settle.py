"""Settle: ends deliveries and stores messages in one transaction, all of it or nothing.

    Settle ──▶ request number done before?                    ──▶ the first answer
           ──▶ every delivery, topic, message, quota, room        one problem refuses all; nothing is written yet
           ──▶ sends, results, acks, rejects, releases            in this order

Rejects come before releases: a release in a FIFO topic also gives back what comes after its message. What only a write
finds out, such as a map without adjacent pages, or a lite topic too many, raises after others were written; core.py
then runs the batch again without this command, so that leaves nothing behind either.

A Settle is never done in parts, as a ChangeInvisibleTime may be: it has as many releases and rejects as one commit
takes, or is refused. Where others of its batch have written the dead letters that a commit may have, it runs again, as
a whole, in the next one.

See docs/decisions/0054-settle.md.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from popmq_server.contract.commands import Change, Changed, Send, Sent, Settle, Settled
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import deadletter, lease
from popmq_server.embedded.rules.delivery.lease import FoundMember
from popmq_server.embedded.rules.results import stored
from popmq_server.embedded.rules.retention.by_size import with_room
from popmq_server.embedded.rules.sending import dedup, send
from popmq_server.embedded.rules.sending.placing import NO_EXTRA, Placing
from popmq_server.embedded.rules.topics import quotas, readers
from popmq_server.embedded.rules.topics.topic import demand
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import CheckPoint
from popmq_server.errors import Later, Refused, group_not_found, invalid
from popmq_server.values import permission, topic_types
from popmq_server.values.handles import read_handle
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import Group, Topic

#: How a topic places messages that are not plain.
PlacingOf = Callable[[Topic], type[Placing]]


class Acks(NamedTuple):
    """The members to finish: a part of a CheckPoint's lease, and which of its members, as bits."""

    ck: CheckPoint
    sub: int
    bits: int


class Alike(NamedTuple):
    """Members of one part that change in the same way, each with its place in the request."""

    change: Change
    founds: list[tuple[int, FoundMember]]


def settle(tx: Tx, command: Settle, placing_of: PlacingOf) -> Settled:
    """Does all of a Settle, or raises Refused; Later if other commands of the batch left no room for its dead letters.

    `placing_of`: as `kind` of `send.send`.
    """
    group = readers.group(tx, command.group)
    if group is None:
        raise group_not_found(command.group)
    key = dedup.key_of(command)
    if key and (first := dedup.first_settled(tx, key, command)) is not None:
        return Settled(first, True, {})
    if command.results:
        stored.check_kept(group)
    acks = _to_ack(tx, group, command)
    alikes = _to_change(tx, group, command, acks)
    topics = [_checked(tx, each, f"sends[{index}]") for index, each in enumerate(command.sends)]
    _check_leaving(tx, group, command, alikes)
    for index, (each, topic) in enumerate(zip(command.sends, topics, strict=True)):
        _make_room(tx, each, topic, f"sends[{index}]")
    return _carried_out(tx, group, command, topics, acks, alikes, key, placing_of)


def _carried_out(
    tx: Tx,
    group: Group,
    command: Settle,
    topics: list[Topic],
    acks: list[Acks],
    alikes: list[Alike],
    key: bytes,
    placing_of: PlacingOf,
) -> Settled:
    """Writes all of it. From here on a refusal is one that core.py has to undo."""
    sent = tuple(
        _stored(tx, each, topic, placing_of(topic), f"sends[{index}]")
        for index, (each, topic) in enumerate(zip(command.sends, topics, strict=True))
    )
    if command.results:
        stored.store(tx, group, lease.records_of(tx, lease.read(command.handles), command.results))
    acked = _finish(tx, acks, len(command.handles))
    for alike in sorted(alikes, key=lambda each: each.change.kind == "release"):
        if held := lease.still_held(tx, alike.founds):  # the others went with the release of one before them
            lease.carry_out(tx, group, alike.change, held)
    if key:
        dedup.remember_settled(tx, key, command, sent)
    return Settled(sent, False, acked)


def settle_all(tx: Tx, commands: Sequence[Settle], whole: Send) -> list[Settled] | None:
    """Does several Settles of one group, each of them acks and one plain message, as `settle` would one by one.

    `whole` has the messages of all, for one topic. Returns None and changes nothing unless all are new and need nothing
    else: the caller then runs each by itself.
    """
    keys = [dedup.key_of(command) for command in commands]
    acks = lease.plain_acks(tx, commands) if dedup.all_new(tx, keys) else None
    if acks is None or not (sent := send.send_all(tx, whole)):
        return None
    lease.finish_all(tx, acks)
    settled = []
    for command, key, one in zip(commands, keys, sent, strict=True):
        if key:
            dedup.remember_settled(tx, key, command, (one,))
        settled.append(Settled((one,), False, {acks.topic: len(command.handles)}))
    return settled


# ── Deliveries ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _to_ack(tx: Tx, group: Group, command: Settle) -> list[Acks]:
    """The members that `handles` name. Raises Refused for the first that is over, or named twice."""
    handles = lease.read(command.handles)
    if (found := lease.together(tx, group, handles)) is not None:
        bits_of, cks = found
        return [Acks(ck, 0, bits_of[ck_id]) for ck_id, ck in cks.items()]
    parts = Counter[tuple[int, int]]()  # by part the members, as bits
    for index, handle in enumerate(handles):
        field = f"handles[{index}]"
        if isinstance(handle, Refused):
            handle.field = field
            raise handle
        member = lease.find(tx, group, handle, field)
        part = member.ck.ck_id, member.sub
        if parts[part] & member.bit:
            raise lease.twice(field)
        parts[part] |= member.bit
    return [Acks(tx.state.ck[ck_id], sub, bits) for (ck_id, sub), bits in parts.items()]


def _to_change(tx: Tx, group: Group, command: Settle, acks: list[Acks]) -> list[Alike]:
    """The members that `changes` name, those together that change in the same way. Raises Refused."""
    _check_moves(command)
    found: dict[tuple[object, ...], Alike] = {}
    taken = Counter[int]()  # by CheckPoint the members that have an entry, as bits
    for ck, _, bits in acks:
        taken[ck.ck_id] |= bits
    for index, change in enumerate(command.changes):
        field = f"changes[{index}].handle"
        member = lease.find(tx, group, read_handle(change.handle, field), field)
        lease.check_free(member, field)
        if taken[member.ck.ck_id] & member.bit:
            raise lease.twice(field)
        taken[member.ck.ck_id] |= member.bit
        if change.snooze:
            change = lease.snoozed(group, change, member)
        alike = found.setdefault((member.ck.ck_id, member.sub, *change[1:]), Alike(change, []))
        alike.founds.append((index, member))
    return [*found.values()]


def _check_moves(command: Settle) -> None:
    """Refuses more releases and rejects than one commit takes."""
    moves = sum(lease.MOVES[each.kind] for each in command.changes)
    if moves > lease.MOVES_MAX:
        raise invalid(
            f"these releases and rejects do not fit into one commit: a release counts as 1, a reject as 2, and "
            f"{lease.MOVES_MAX} fit, here are {moves}",
            field="changes",
            action="settle fewer deliveries in a request",
        )


def _check_leaving(tx: Tx, group: Group, command: Settle, alikes: list[Alike]) -> None:
    """Refuses, before anything is written, what has no room in the store or among the commit's dead letters."""
    untouched = deadletter.budget(tx).untouched
    results: list[Changed | Refused] = [Changed(0, False)] * len(command.changes)
    for alike in alikes:
        lease.may_leave(tx, group, alike.change, alike.founds, results)
    for index, result in enumerate(results):
        if isinstance(result, Later) and untouched:
            raise invalid(
                "the dead letters of this request are more than one commit takes",
                field=f"changes[{index}].handle",
                action="settle fewer deliveries in a request",
            )
        if isinstance(result, Refused):
            raise result


def _finish(tx: Tx, acks: list[Acks], deliveries: int) -> dict[str, int]:
    """Finishes members, one for each of the named deliveries; returns their number by topic."""
    topics: dict[str, int] = {}
    for ck, sub, bits in acks:
        lease.finish(tx, ck, sub, bits)
        name = tx.state.topics[ck.topic_id].name
        topics[name] = topics.get(name, 0) + bits.bit_count()
    if (done := sum(topics.values())) != deliveries:
        broken("settle_ends_each_delivery", asked=deliveries, done=done)
    return topics


# ── Messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _messages(command: Send) -> tuple[Outgoing, ...]:
    return command.entries  # type: ignore[return-value]  # hashed by loop/hashes.py; none of a Settle is refused


def _checked(tx: Tx, command: Send, field: str) -> Topic:
    """The topic of a send, if it takes all messages now, as far as can be told without storing one. Raises Refused."""
    try:
        topic = send.expect_topic(tx, command.topic)
        permission.check_send(topic)
        quotas.check_send(tx, topic, _messages(command))
    except Refused as refused:
        raise _within(refused, field) from None
    for number, message in enumerate(_messages(command)):
        extra = message.extra or NO_EXTRA
        if refusal := topic_types.refusal(topic, extra) or quotas.too_large(topic, message):
            raise _within(refusal, f"{field}.messages[{number}]")
    return topic


def _make_room(tx: Tx, command: Send, topic: Topic, field: str) -> None:
    """Lets retention drop what may go from a topic with a limit of bytes. Raises Refused if that is not enough."""
    try:
        _demand(tx, topic, _messages(command))
    except Refused as refused:
        raise _within(refused, field) from None


_demand = with_room(demand)


def _stored(tx: Tx, command: Send, topic: Topic, kind: type[Placing], field: str) -> Sent:
    sent = send.send(tx, command, topic, kind)
    for number, place in enumerate(sent.places or ()):
        if isinstance(place, Refused):
            raise _within(place, f"{field}.messages[{number}]")
    return sent


def _within(refused: Refused, field: str) -> Refused:
    """The refusal with its field as a path in the request."""
    refused.field = f"{field}.{refused.field}" if refused.field else field
    return refused
