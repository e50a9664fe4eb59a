"""Pop: chooses the next messages of a group and leases them.

                     select                     lease
    ready, retry  ──────────▶  Pick (a plan)  ──────────▶  CheckPoint + due + poff     one transaction

    ready    cq at and above poff                        retry    rq, the retry topic
    leased   an undone member of a CheckPoint            backoff  the same, CheckPoint of kind backoff
    done     its bit is set, or its CheckPoint is gone

ARCHITECTURE.md has a table of all transitions, each with its function and its test.

One pop in five starts with the retry topic; the others fill up with it when there is room (FIFO: every second one).
turns.py sets the order of the queues and bounds their waiting time. `rest` counts the messages that the visited queues
still have, whether or not they match the group's filter. A pop that skipped as many messages as it may and found none
sets `again`: it runs again after the other waiting commands.
"""

from collections.abc import Sequence

from popmq_server.contract.commands import Pop
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.operations import PeekedPiece, PeekPiece
from popmq_server.embedded.rules.delivery import invalidated
from popmq_server.embedded.rules.delivery.fair import choice
from popmq_server.embedded.rules.delivery.fifo_pick import FifoPick
from popmq_server.embedded.rules.delivery.pick import Bounds, Pick
from popmq_server.embedded.rules.delivery.session_lease import SESSION_LEASE_MS
from popmq_server.embedded.rules.delivery.subscription import (
    ALL_QUEUES,
    assigned,
    expect_mode,
    filter_for,
    note_read,
    resolve,
    starts,
    subscribe,
)
from popmq_server.embedded.rules.topics import quotas
from popmq_server.embedded.rules.topics.log import Log, located
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import (
    FIFO,
    NORMAL,
    RETRY,
    CheckPoint,
)
from popmq_server.errors import Refused, no_queue
from popmq_server.values import permission
from popmq_server.values.ids import GroupTopic
from popmq_server.values.leased import Leased
from popmq_server.values.records import RETRY_QUEUE, Group, Topic
from popmq_server.values.turns import Turns

#: When to try again after IN_FLIGHT_LIMIT: an ack may come at any time.
IN_FLIGHT_RETRY_MS = 1000
_NO_TURNS = Turns()


def pop(tx: Tx, command: Pop) -> Leased:
    """Leases deliverable messages; an empty answer leases nothing.

    No message moves before all are chosen: `Pick` only reads, `apply` moves positions, `lease` creates the CheckPoint.
    When messages are left, the commit wakes the next parked Pop: chain waking.
    """
    group, topic = resolve(tx, command.topic, command.group, "lite_topics")
    named = command.queues or assigned(tx, group, topic, command.of_queue)
    queues = queues_of(topic, named)
    permission.check_read(group, topic)
    expect_mode(tx, group, topic, "POP")
    if group.fair_keys is not None:
        choice.check(tx, group, topic, command.queues)
    wanted = subscribe(tx, group, topic, command.filter, replace=command.filter_wins)
    note_read(tx, (group.group_id, topic.topic_id), named or (ALL_QUEUES,))
    if command.attempt_id:
        tried = leases.tried(tx.state, group.group_id, topic.topic_id, command.client_id, command.attempt_id)
        if tried is not None and not invalidated.of_checkpoint(tx.state, tried):
            return _replay(tx, tried)
    allowed = quotas.pop_room(tx, group, topic)
    messages_max = command.max_messages if allowed is None else min(command.max_messages, allowed)
    pick = picking(tx, group, topic)(tx, group, topic, Bounds(messages_max, command.max_bytes, wanted=wanted))
    if messages_max:
        choose(pick, queues, group.in_flight_max)
        pick.apply()
        quotas.popped(tx, group, topic, len(pick.rows))
    own_ms = SESSION_LEASE_MS if command.session else group.invisible_ms
    due_ms = tx.now_ms + (command.invisible_ms or own_ms)
    ck = None
    if pick.rows:
        ck = lease(tx, pick, due_ms, command.client_id, command.attempt_id, session=command.session)
    rest = pick.rest(tuple(queues))  # after the lease: message groups that it locks are not ready
    quota_ms = quotas.next_ms(tx, group, topic) if rest else 0
    if ck is None:
        return _nothing(pick, queues, rest, quota_ms)._replace(
            named=bool(named), look_ms=pick.look_ms, behind=pick.behind
        )
    if rest:
        tx.wake(group.group_id, topic.topic_id)
    elif not named and not pick.behind:
        tx.serve(group.name, topic.name)
    return Leased(
        rows=pick.rows,
        ck_id=ck.ck_id,
        nonce=ck.nonce,
        popped_ms=tx.now_ms,
        due_ms=due_ms,
        rest=rest,
        quota_ms=quota_ms,
        type=topic.type,
        behind=pick.behind,
    )


def _nothing(pick: Pick, queues: range | tuple[int, ...], rest: int, quota_ms: int) -> Leased:
    """An empty answer: no messages, or the pick reached a bound, or a quota, limit or the room allows no lease now."""
    refusal = pick.no_room
    if rest and not pick.messages_max:
        refusal = quotas.no_quota(pick.tx, pick.group, pick.topic)
    elif rest and not refusal and not pick.unfinished:
        refusal = _all_leased(pick, queues)
    return Leased(
        rows=[],
        ck_id=0,
        nonce=0,
        popped_ms=pick.tx.now_ms,
        due_ms=0,
        rest=rest,
        again=bool(rest) and pick.unfinished,
        refusal=refusal,
        quota_ms=quota_ms,
    )


def _all_leased(pick: Pick, queues: range | tuple[int, ...]) -> Refused | None:
    """Refused when every source that has messages has reached the group's limit of leased messages."""
    group = pick.group
    state, where = pick.tx.state, (group.group_id, pick.topic.topic_id)
    filled = [queue for queue in queues if _has_unread(state, where, queue)]
    if state.stat[where].retry:
        filled.append(RETRY_QUEUE)
    if not filled or any(state.in_flight.get((*where, queue), 0) < group.in_flight_max for queue in filled):
        return None
    return Refused(
        "IN_FLIGHT_LIMIT",
        f"group {group.name!r} has {group.in_flight_max} messages leased in each queue of topic {pick.topic.name!r} "
        "that has unread messages",
        field="group",
        action="ack leased messages, or raise the group's in_flight_max",
        retry_after_ms=IN_FLIGHT_RETRY_MS,
    )


def _has_unread(state: State, where: GroupTopic, queue: int) -> bool:
    """Whether a group has not read all of a queue."""
    return state.poff.get((*where, queue), 0) < state.queue_max.get((where[1], queue), 0)


def picking(tx: Tx, group: Group, topic: Topic) -> type[Pick]:
    """The class of plans for a group in a topic."""
    if group.fair_keys is not None and choice.is_by_key(tx, group, topic):
        return choice.FairPick
    return plain_picking(topic)


def plain_picking(topic: Topic) -> type[Pick]:
    """The class of plans without fair keys for a topic."""
    return FifoPick if topic.type == "FIFO" else Pick


def choose(pick: Pick, queues: range | tuple[int, ...], in_flight_max: int | None) -> None:
    """One round over the retry topic and the queues in the order of turns.py, until the pick is full.

    The retry topic comes either before the queues or after them, so that neither of the two sources starves the other.
    `take_more` is last: every message group has had its share of the batch before one of them gets more.
    """
    where = (pick.group.group_id, pick.topic.topic_id)
    if invalidated.hides(pick.tx.state, where):
        return
    pick.in_flight_max = in_flight_max
    if pick.by_key:
        pick.take_by_turns()
        return
    turns = pick.tx.state.turns.get(where, _NO_TURNS)
    visits = turns.visits(pick.topic, queues)
    gave_way = _gives_way(pick, turns, visits)
    retried = pick.take_retry() if gave_way is not None else False
    for queue in visits:
        if not pick.room or pick.cut:
            break
        pick.take_queue(queue)
    if gave_way is None:
        retried = pick.take_retry()
    pick.take_more()
    if pick.served or retried:
        pick.turns = turns.after(pick.topic, visits, pick.served, retried=retried, gave_way=gave_way)


def _gives_way(pick: Pick, turns: Turns, visits: Sequence[int]) -> int | None:
    """The queue that this pop visits first after the retries; None when queues come before retries."""
    if not turns.retries_due(pick.topic) or not pick.has_retries() or pick.allowed(RETRY_QUEUE) <= 0:
        return None
    first = next((queue for queue in visits if pick.has(queue) and pick.allowed(queue) > 0), None)
    return None if first in turns.gave_way else first


def lease(
    tx: Tx, pick: Pick, due_ms: int, client: str, attempt_id: str, owner_id: int = 0, *, session: bool = False
) -> CheckPoint:
    """Leases the picked messages under one CheckPoint until `due_ms`, or with `session` as long as the client lives."""
    kind, members = RETRY if len(pick.retries) == len(pick.runs) and pick.retries else NORMAL, len(pick.rows)
    if members > pick.messages_max:
        broken("pop_takes_no_more_than_asked", members=members, most=pick.messages_max)
    message_groups, part = tuple[bytes, ...](), 0
    if isinstance(pick, FifoPick):
        kind, message_groups, part = FIFO, tuple(pick.message_groups), pick.part
    ck = leases.new_checkpoint(
        tx,
        (pick.group.group_id, pick.topic.topic_id),
        kind,
        members,
        pick.runs,
        pick.chunks,
        owner_id=owner_id,
        attempt_id=attempt_id,
        client=client,
        message_groups=message_groups,
        part=part,
        session=session,
        fair_keys=pick.fair_keys,
    )
    leases.begin(tx, ck, due_ms)
    return ck


def queues_of(topic: Topic, named: tuple[int, ...]) -> range | tuple[int, ...]:
    """The queues to visit: the named ones, or all. Raises Refused for a queue that the topic does not have."""
    for index, queue in enumerate(named):
        if queue >= topic.queues:
            raise no_queue(topic.name, topic.queues, queue, f"queues[{index}]")
    return named or range(topic.queues)


def _replay(tx: Tx, ck: CheckPoint) -> Leased:
    """The answer to a repeated attempt id: the same messages without the done ones; attempts do not increase.

    It includes members whose lease was changed alone; the returned deadline is the earliest of all.
    """
    parts = [part for sub in range(ck.members + 1) if (part := tx.state.leases.get((ck.ck_id, sub)))]
    rows, _ = read_members(tx, ck, sum(part.undone for part in parts))
    due_ms = min(part.due_ms for part in parts)
    return Leased(
        rows=rows,
        ck_id=ck.ck_id,
        nonce=ck.nonce,
        popped_ms=ck.popped_ms,
        due_ms=due_ms,
        rest=0,
        replay=True,
        type=tx.state.topics[ck.topic_id].type,
    )


def read_members(tx: Tx, ck: CheckPoint, bits: int) -> tuple[list[tuple[bytes, int, int, int, int, int]], int]:
    """Rows of the members in `bits`, and the number of unreadable members."""
    log, rows, lost = Log(tx.kv), [], 0
    for member, run, offset, position, size in located(tx.kv, ck, bits):
        read = log.fetch(ck.topic_id, position, size)
        if read is None:
            lost += 1
        else:
            rows.append((read[1], read[0], run.queue, offset, run.attempts, member))
    return rows, lost


def peek(tx: Tx, command: PeekPiece) -> PeekedPiece:
    """Runs one piece of a Peek: the messages that the group's next Pop would deliver.

        Pop     choose ─▶ apply ─▶ lease         positions, turns, attempts, CheckPoint
        Peek    choose ─▶ rows                   changes nothing, not even the turns

    A group that has not named the topic yet gets the messages from its start position, and is not bound to the topic.
    When a plan reaches a bound before it finds a message, another piece continues where it stopped. Not in a FIFO
    topic, where a second piece would depend on the messages that the first one lets wait.
    """
    group, topic = resolve(tx, command.topic, command.group)
    wanted = filter_for(tx, group, topic, command.filter)
    where = (group.group_id, topic.topic_id)
    kind = picking(tx, group, topic) if where in tx.state.stat else plain_picking(topic)
    pick = kind(tx, group, topic, Bounds(command.messages_max, command.bytes_max, wanted=wanted))
    if command.begins is not None:
        pick.begins = command.begins
    elif where not in tx.state.stat:
        pick.begins = starts(tx, group, topic)
    choose(pick, range(topic.queues), group.in_flight_max)
    reached = pick.begins | pick.poff
    again = not pick.rows and pick.unfinished and topic.type != "FIFO" and reached != command.begins
    return PeekedPiece(pick.rows, reached if again else None)
