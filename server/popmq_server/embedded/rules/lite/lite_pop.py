"""Pop of lite topics: one batch from several ready lite topics of a client, each under its own CheckPoint.

    ready in the watch: bob, alice, zoe        bob ──▶ LitePick ──▶ CheckPoint, its message group locked ┐
                                               alice ──▶ …                                                ├─▶ one answer
                                               … until the batch is full                                  ┘

A lite topic gets at most its share of a batch while others are ready too. A Pop skips locked lite topics: no message of
them has to wait, since the lock covers the whole lite topic. A repeated attempt id gets the same undone messages again,
from all lite topics; lite topics that were empty are not part of the attempt.

A Pop of all lite topics (`*`) first judges those that existed before its watch did, one piece each time it runs.
"""

import itertools

from popmq_server.contract.commands import Pop
from popmq_server.embedded.rules.delivery import invalidated
from popmq_server.embedded.rules.delivery.fair import choice
from popmq_server.embedded.rules.delivery.fifo_pick import FifoPick
from popmq_server.embedded.rules.delivery.pick import Bounds
from popmq_server.embedded.rules.delivery.pop import lease, read_members
from popmq_server.embedded.rules.delivery.session_lease import SESSION_LEASE_MS
from popmq_server.embedded.rules.delivery.subscription import bind
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.rules.topics import quotas
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.all_tables import lite_hash
from popmq_server.embedded.state.lite_watch import LOOKS_MAX, Key, Watch, named, wake_key
from popmq_server.embedded.state.rows import LITE_NAME
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import U32
from popmq_server.errors import invalid
from popmq_server.values import permission
from popmq_server.values.leased import Leased
from popmq_server.values.message import ALL_LITE_TOPICS
from popmq_server.values.records import Group, Topic

#: Lite topics that one Pop of all of them judges: some 5 ms.
SEEN_AT_ONCE = 1000
#: One lite topic's share of a batch while others may have messages too: one part in this many.
SHARE_OF_BATCH = 8


class LitePick(FifoPick):
    """A plan for one lite topic: waiting messages first, then unread ones."""

    def __init__(self, tx: Tx, group: Group, topic: Topic, messages_max: int, bytes_max: int, *, first: bool) -> None:
        """`first`: the first lite topic of the answer, whose first message always fits."""
        super().__init__(tx, group, topic, Bounds(messages_max, bytes_max))
        self._first = first

    def _fits(self, size: int) -> bool:
        self.full = size > self.bytes_left and not (self._first and not self.rows)
        return not self.full

    def take(self, in_flight_max: int) -> None:
        """Takes messages. The whole lite topic is one message group and is free, so no message has to wait."""
        self.in_flight_max = in_flight_max
        if invalidated.hides(self.tx.state, self.where):
            return
        message_group = lite_hash(self.topic.lite_topic)
        if self._waits(message_group):
            self._take_waiting(message_group, self.room)
        if self.room and not self.cut and not self._waits(message_group):
            self.take_queue(0)


def client_of(command: Pop) -> str:
    """The watch that a Pop reads: its client's, or that shared by all Pops that name the same lite topics."""
    return named(command.lite) if command.lite else command.client_id


def parked_at(command: Pop) -> str:
    """The key under which a Pop waits, instead of a topic name."""
    return command.topic if command.lite is None else wake_key(command.topic, client_of(command))


def pop(tx: Tx, command: Pop) -> Leased:
    """Leases deliverable messages of the lite topics that the command names, or its client has subscribed to."""
    group, parent = lite_topics.resolve(tx, command.topic, command.group)
    permission.check_read(group, parent)
    choice.refuse_type(group, parent)
    if command.queues or command.filter is not None:
        field = "queues" if command.queues else "filter"
        raise invalid("lite topics have neither queues nor filters", field=field, action="leave it unset")
    bind(tx, group, parent)
    tried = leases.attempt_key(group.group_id, parent.topic_id, command.client_id, command.attempt_id)
    if command.attempt_id and (again := _replay(tx, command, tx.state.lite_attempts.get(tried, ()))):
        return _joined(tx, again, 0, replay=True)
    key = (group.name, parent.name, client_of(command))
    watch = _watch(tx, key, command.lite or ())
    more = watch is not None and _see(tx, parent, key, watch)
    allowed = quotas.pop_room(tx, group, parent)
    room = command.max_messages if allowed is None else min(command.max_messages, allowed)
    ready = tx.state.watches.ready(key)
    more |= len(ready) == LOOKS_MAX
    parts = _take(tx, group, parent, key, command, room, ready) if room else []
    rows = sum(len(part.rows) for part in parts)
    quotas.popped(tx, group, parent, rows)
    if rows and command.attempt_id:
        leases.remember_attempt(tx, tried, tuple(part.ck_id for part in parts if part.rows))
    rest = tx.state.watches.ready_count(key)
    if rest and rows:
        tx.woken.add((group.name, wake_key(*key[1:])))
    quota_ms = quotas.next_ms(tx, group, parent) if rest else 0
    joined = _joined(tx, parts, rest)._replace(quota_ms=quota_ms)
    if more and room and not rows:
        return joined._replace(again=True, refusal=None)
    if rest and not room:
        return joined._replace(refusal=quotas.no_quota(tx, group, parent))
    return joined


def _watch(tx: Tx, key: Key, names: tuple[str, ...]) -> Watch | None:
    """Refreshes the watch of a client, or creates and refreshes that of Pops with these names.

    A Pop does not create a client's watch: only SyncLite sets its names; without them the client gets nothing.
    """
    watches = tx.state.watches
    if not names:
        return None if watches.get(key, tx.now_ms) is None else watches.refresh(key, tx.now_ms)
    watch = watches.get(key, tx.now_ms)
    watches.check_room(sum(name not in watch.names for name in names) if watch else len(names), tx.now_ms)
    watch = watches.refresh(key, tx.now_ms)
    watches.add(key, names)
    return watch


def _see(tx: Tx, parent: Topic, key: Key, watch: Watch) -> bool:
    """Judges a piece of the lite topics that existed before a watch of all; returns whether more are left."""
    if watch.unseen is None and watch.ready is not None:
        return False
    tx.state.watches.ready_count(key)  # makes a list that a deleted group has lost
    if watch.unseen is None or ALL_LITE_TOPICS not in watch.names:
        return False
    prefix = LITE_NAME + U32.pack(parent.topic_id)
    keys = tx.kv.scan_keys("name", prefix, prefix + watch.unseen.encode())
    found = [name[len(prefix) :].decode() for name in itertools.islice(keys, SEEN_AT_ONCE + 1)]
    unseen = found.pop() if len(found) > SEEN_AT_ONCE else None
    tx.state.watches.see(key, found, unseen)
    return unseen is not None


def _take(tx: Tx, group: Group, parent: Topic, key: Key, command: Pop, room: int, ready: list[str]) -> list[Leased]:
    """Returns a part for each lite topic that gave messages, or in which the search was cut short."""
    watches, parts, bytes_left = tx.state.watches, list[Leased](), command.max_bytes
    own_ms = SESSION_LEASE_MS if command.session else group.invisible_ms
    due_ms = tx.now_ms + (command.invisible_ms or own_ms)
    for index, name in enumerate(ready):
        if not room or bytes_left <= 0:
            break
        topic = lite_topics.find(tx, parent, name)
        share = -(-room // min(SHARE_OF_BATCH, len(ready) - index))
        if topic is not None and tx.state.deliverable(group.name, topic.topic_id):
            bind(tx, group, topic)
            pick = LitePick(tx, group, topic, share, bytes_left, first=not parts)
            pick.take(group.in_flight_max)
            pick.apply()
            room, bytes_left = room - len(pick.rows), pick.bytes_left
            parts += _leased(tx, pick, due_ms, command)
        watches.judge(group.name, parent.name, name)
    return parts


def _leased(tx: Tx, pick: LitePick, due_ms: int, command: Pop) -> list[Leased]:
    """Leases the picked messages."""
    if pick.rows:
        ck = lease(tx, pick, due_ms, command.client_id, command.attempt_id, session=command.session)
        return [
            Leased(
                rows=pick.rows,
                ck_id=ck.ck_id,
                nonce=ck.nonce,
                popped_ms=tx.now_ms,
                due_ms=due_ms,
                rest=0,
                type=pick.topic.type,
            )
        ]
    if not pick.cut:
        return []
    again, refusal = not pick.no_room, pick.no_room
    return [Leased(rows=[], ck_id=0, nonce=0, popped_ms=tx.now_ms, due_ms=0, rest=0, again=again, refusal=refusal)]


def _joined(tx: Tx, parts: list[Leased], rest: int, replay: bool = False) -> Leased:
    """Joins the parts into one answer, with the earliest deadline; `rest` counts lite topics with messages."""
    leased = tuple(part for part in parts if part.rows)
    rows = [row for part in leased for row in part.rows]
    popped_ms = min((part.popped_ms for part in leased), default=tx.now_ms)
    due_ms = min((part.due_ms for part in leased), default=0)
    again = not rows and any(part.again for part in parts)
    refusal = None if rows or again else next((part.refusal for part in parts if part.refusal), None)
    return Leased(
        rows=rows,
        ck_id=0,
        nonce=0,
        popped_ms=popped_ms,
        due_ms=due_ms,
        rest=rest,
        replay=replay,
        again=again,
        refusal=refusal,
        type="LITE",
        parts=leased,
    )


def _replay(tx: Tx, command: Pop, ck_ids: tuple[int, ...]) -> list[Leased]:
    """The undone messages of an attempt, without counting a new one."""
    found = []
    for ck_id in ck_ids:
        ck = tx.state.ck[ck_id]
        if (ck.client, ck.attempt_id) != (command.client_id, command.attempt_id):
            continue
        alive = tx.state.alive(ck.topic_id)
        parts = [part for _, part in leases.parts(tx, ck)] if alive else []
        bits = sum(part.undone for part in parts) & ~invalidated.of_checkpoint(tx.state, ck)
        rows, _ = read_members(tx, ck, bits)
        if rows:
            due_ms = min(part.due_ms for part in parts)
            found.append(
                Leased(
                    rows=rows,
                    ck_id=ck_id,
                    nonce=ck.nonce,
                    popped_ms=ck.popped_ms,
                    due_ms=due_ms,
                    rest=0,
                    replay=True,
                    type="LITE",
                )
            )
    return found
