"""Pop: a round over the topic's brokers, a wait if they have nothing, and the round again.

    round    pops of 32 at most (broker_pops.py), POPS_MAX at once, until there is enough or a broker has no more
    rows     tags compared again (brokers compare hashes; what does not match is acked)
             redriven for another group ─▶ acked
             attempts used up ─▶ a dead letter, not delivered
             queue numbers by the layout, a signed handle
    wait     waits.py: a request parked at each broker, that of all clients

A lease that nobody will use ends at once: of a caller who has gone, and of a pop that the process stops.
"""

import asyncio
import functools
import itertools
from dataclasses import dataclass
from typing import NamedTuple

from popmq_remoting import Route
from popmq_remoting.errors import BadFormat
from popmq_remoting.names import NORMAL
from popmq_remoting.pops.infos import PoppedMessage
from popmq_remoting.requests import popping
from popmq_remoting.requests.popping import MESSAGES_MAX, PopOutcome
from popmq_server.cluster import names
from popmq_server.cluster.brokers import succeeded
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.from_broker import message_bytes
from popmq_server.cluster.popping.attempts import Attempts, Key, key_of
from popmq_server.cluster.popping.broker_pops import BrokerPops, PopKey
from popmq_server.cluster.popping.dead import USED_UP, DeadLetters
from popmq_server.cluster.popping.sessions import Held
from popmq_server.cluster.popping.starts import Starts
from popmq_server.cluster.popping.waits import LineKey, Waits
from popmq_server.cluster.refusals import Asked, lacks_group, refusal
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed.handles import SignedDelivery
from popmq_server.contract.commands import Pop, Popped, PoppedRow, bytes_of
from popmq_server.contract.deadline import remaining_s
from popmq_server.errors import Refused
from popmq_server.values import fields, permission
from popmq_server.values.filters import filter as filters
from popmq_server.values.filters.filter import Filter
from popmq_server.values.records import Group

_ALL_QUEUES = -1
#: Requests of one pop that are under way together.
POPS_MAX = 4


class Wanted(NamedTuple):
    """A Pop, and what is known about what it names."""

    command: Pop
    topic: KnownTopic
    group: Group
    filter: Filter
    invisible_ms: int
    share_number: int

    @property
    def broker_group(self) -> str:
        """The group as brokers call it."""
        return names.broker_group(self.group.name)


class _Round(NamedTuple):
    """What a round found. `rest`: messages that are left at each broker that was asked."""

    rows: list[PoppedRow]
    due_ms: int
    rest: dict[str, int]


class _Part(NamedTuple):
    """What one request took. `taken`: messages, also those that are not delivered."""

    rows: list[PoppedRow]
    due_ms: int
    rest: dict[str, int]
    taken: int


@dataclass
class _Callers:
    """How many wait for a pop, whether all have gone, and whether the pop is at its wait, where it can be ended."""

    count: int = 0
    gone: bool = False
    waits: bool = False


class Pops:
    """Pops of the brokers in turn."""

    def __init__(self, shared: Shared, dead: DeadLetters, starts: Starts) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts, self._handles, self._modes = shared.layouts, shared.handles, shared.modes
        self._background, self._now_ms = shared.background, shared.now_ms
        self._starts, self._dead = starts, dead
        self.waits = Waits(shared.brokers)
        self.attempts = Attempts(shared.now_ms)
        self.held = Held(self.attempts.over)
        self._at_brokers = BrokerPops(shared)
        self._loop = asyncio.get_running_loop()
        self._turn = 0
        #: The mean size of the messages that were popped last, by topic: brokers count messages, not their bytes.
        self._sizes: dict[str, int] = {}
        #: Of pops that are under way.
        self._callers: dict[asyncio.Task[Popped], _Callers] = {}

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Raises Refused."""
        key = key_of(command)
        task = self.attempts.known(key) if key is not None else None
        is_repeat = task is not None
        if task is None:
            callers = _Callers()
            task = self._loop.create_task(self._pop(command, wait_ms, callers))
            self._callers[task] = callers
            task.add_done_callback(self._callers.pop)
            if key is not None:
                self.attempts.keep(key, task)
        popped = await self._waited_for(task, command, key)
        return self.attempts.left(popped) if is_repeat else popped

    async def _waited_for(self, task: "asyncio.Task[Popped]", command: Pop, key: Key | None) -> Popped:
        """The answer of a pop that is under way, maybe for other callers too, or has ended."""
        callers = self._callers.get(task) or _Callers()
        callers.count += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if callers.count == 1 and (key is None or command.release_if_gone):
                callers.gone = True
                if key is not None:  # its messages are given back: a repeat gets others
                    self.attempts.forget(key)
                task.add_done_callback(functools.partial(self._unheard, command.group))
                if callers.waits:
                    task.cancel()
            raise
        finally:
            callers.count -= 1

    async def _pop(self, command: Pop, wait_ms: int, callers: _Callers) -> Popped:
        wanted = await self._wanted(command)
        until_s = self._wait_until_s(wait_ms)
        places = await self._places(wanted, await self._topics.route(command.topic))
        known, group, ordered = wanted.topic.broker_name, wanted.broker_group, wanted.topic.is_fifo
        keys = [LineKey(broker, known, group, ordered) for broker in places]
        told: LineKey | None = None
        while True:
            found = await self._round(wanted, places if told is None else {told.broker: places[told.broker]})
            if told is not None:
                self.waits.looked(told, len(found.rows), found.rest.get(told.broker, 0))
            if found.rows or callers.gone or self._loop.time() >= until_s:
                return self._answer(wanted, found)
            callers.waits = True
            told = await self.waits.wait(keys, until_s)
            callers.waits = False
            if told is None:
                return self._answer(wanted, found)

    def _wait_until_s(self, wait_ms: int) -> float:
        """When a pop has to end: before its client gives up."""
        left_s = remaining_s()
        now_s = self._loop.time()
        return now_s + (wait_ms / 1000 if left_s is None else min(wait_ms / 1000, max(0.0, left_s - 0.5)))

    async def _wanted(self, command: Pop) -> Wanted:
        topic = await self._topics.get(command.topic)
        group = await self._groups.get(command.group)
        permission.check_read(group, topic.settings)
        how = await self._modes.expect(topic, group, "POP")
        await self._starts.begin(topic, group)
        wanted = filters.make(*command.filter or ("", ""))
        own_ms = self._groups.session_ms(group) if command.session else group.invisible_ms
        share_number = how.share_number or group.share_number
        return Wanted(command, topic, group, wanted, command.invisible_ms or own_ms, share_number)

    async def _places(self, wanted: Wanted, route: Route) -> dict[str, list[int]]:
        """The ids of the queues to pop, by broker: [-1] for all. Raises Refused."""
        command = wanted.command
        named = command.queues
        if not named and command.of_queue >= 0 and wanted.share_number and not wanted.topic.is_fifo:
            named = (command.of_queue,)
        if not named:
            return {broker: [_ALL_QUEUES] for broker, queues in sorted(route.queues.items()) if queues.is_readable}
        whole = await self._layouts.of(wanted.topic)
        places: dict[str, list[int]] = {}
        for queue in named:
            place: QueuePlace = whole.place(command.topic, queue, "queues")
            places.setdefault(place.broker, []).append(place.queue_id)
        return places

    # ── A round ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _round(self, wanted: Wanted, places: dict[str, list[int]]) -> _Round:
        """Pops at these brokers, with another one first each time; at those that stand still only without others."""
        brokers = [broker for broker in places if not self._brokers.cluster.is_silent(broker)] or list(places)
        self._turn += 1
        start = self._turn % len(brokers) if brokers else 0
        found, refusals = _Round([], 0, {}), list[Refused]()
        for broker in brokers[start:] + brokers[:start]:
            for queue_id in places[broker]:
                try:
                    found = await self._taken(wanted, broker, queue_id, found)
                except Refused as refused:
                    refusals.append(refused)
                    break
            if self._room(wanted, found) <= 0:
                break
        if not found.rows:
            # A broker that is away comes back; one that lacks the group would keep its messages, and nobody would see.
            lacking = next(filter(lacks_group, refusals), None)
            if lacking is not None or (refusals and len(refusals) == len(brokers)):
                raise lacking or refusals[0]
        return found

    def _room(self, wanted: Wanted, found: _Round) -> int:
        """How many more messages the pop may take, by what those that it has weigh."""
        command = wanted.command
        if not found.rows:
            most = command.max_bytes // max(1, self._sizes.get(wanted.topic.name, 0))
            return min(command.max_messages, max(1, most))
        size = bytes_of(found.rows)
        fitting = (command.max_bytes - size) * len(found.rows) // max(1, size)
        return 0 if size >= command.max_bytes else min(command.max_messages - len(found.rows), max(1, fitting))

    async def _taken(self, wanted: Wanted, broker: str, queue_id: int, found: _Round) -> _Round:
        """Pops from one broker until the pop is full or the broker has no more messages.

        The first pop tells how many are left; then several go at once, until one of them finds a queue locked by
        another and takes nothing, though there are more. Raises Refused, unless messages were found.
        """
        at_once, most = 1, 1 if wanted.topic.is_fifo else POPS_MAX
        while (room := self._room(wanted, found)) > 0:
            sizes = [min(room - start, MESSAGES_MAX) for start in range(0, room, MESSAGES_MAX)][:at_once]
            pops = [self._part(wanted, broker, queue_id, size) for size in sizes]
            parts = [await pops[0]] if len(pops) == 1 else await asyncio.gather(*pops)
            refused, short = None, False
            for size, part in zip(sizes, parts, strict=True):
                if isinstance(part, Refused):
                    refused = part
                    continue
                due = min(found.due_ms or part.due_ms, part.due_ms or found.due_ms)
                found = _Round(found.rows + part.rows, due, {**found.rest, **part.rest})
                short |= part.taken < size and not (part.taken and part.rest[broker])
                at_once = min(most, 1 + part.rest[broker] // MESSAGES_MAX)
            if short and len(parts) > 1 and any(isinstance(part, _Part) and part.taken for part in parts):
                at_once, most, short = 1, 1, False
            if refused is not None and not found.rows:
                raise refused
            if refused is not None or short:
                break
        return found

    async def _part(self, wanted: Wanted, broker: str, queue_id: int, messages_max: int) -> "_Part | Refused":
        """What one request takes. Messages that cannot be delivered now are given back."""
        try:
            outcome = await self._popped(wanted, broker, queue_id, messages_max)
        except Refused as refused:
            return refused
        if outcome.rows:
            sizes = [len(each.message.body) for each in outcome.rows]
            self._sizes[wanted.topic.name] = sum(sizes) // len(sizes)
        try:
            rows, due_ms = await self._delivered(wanted, broker, outcome)
        except (Refused, BadFormat) as error:
            taken = (SignedDelivery(wanted.topic.broker_name, each.handle) for each in outcome.rows)
            self._at_brokers.release(taken, wanted.group.name)
            return error if isinstance(error, Refused) else refusal(error, Asked(broker, wanted.topic.name))
        return _Part(rows, due_ms, {broker: outcome.rest}, len(outcome.rows))

    async def _popped(self, wanted: Wanted, broker: str, queue_id: int, messages_max: int) -> PopOutcome:
        ordered = wanted.topic.is_fifo
        kind = {"tag": "TAG", "sql92": "SQL92"}.get(wanted.filter.kind)
        return await self._at_brokers.pop(
            PopKey(
                broker,
                queue_id,
                wanted.topic.name,
                wanted.group.name,
                wanted.invisible_ms,
                kind,
                wanted.filter.text if kind else None,
                ordered,
                wanted.command.attempt_id or None if ordered else None,
            ),
            messages_max,
        )

    async def _delivered(self, wanted: Wanted, broker: str, outcome: PopOutcome) -> tuple[list[PoppedRow], int]:
        """The rows of a pop, and when their lease ends by our clock."""
        rows, due_ms = list[PoppedRow](), 0
        ahead_ms = self._brokers.cluster.clock(broker).ahead_ms
        # Before anything is acked, since a refusal gives all of them back.
        queues = {each.handle.queue_id for each in outcome.rows if each.handle.kind == NORMAL}
        numbers = {queue_id: await self._layouts.number(wanted.topic, broker, queue_id) for queue_id in queues}
        for each in outcome.rows:
            delivery = SignedDelivery(wanted.topic.broker_name, each.handle, each.attempt)
            data = message_bytes(each.message, each.properties)
            left_out = wanted.filter.kind == "tag" and not wanted.filter.matches(data)
            if left_out or own.is_for_another(each.properties, wanted.group.name):
                self._background.start(
                    "the ack of a message that is not for its group", self._finish(delivery, wanted.group.name)
                )
            elif each.attempt > wanted.group.max_attempts:
                self._background.start("a dead letter", self._bury(delivery, wanted, each))
            else:
                due_ms = due_ms or each.handle.lapses_ms - ahead_ms
                queue = numbers[each.handle.queue_id] if each.handle.kind == NORMAL else 0
                signed = self._handles.write(delivery, wanted.group.name) if wanted.command.handles else b""
                rows.append((data, each.message.stored_ms, queue, each.handle.queue_offset, each.attempt, signed))
        return rows, due_ms

    def _answer(self, wanted: Wanted, found: _Round) -> Popped:
        """Gives back what makes the answer far too large: its client might not take it."""
        popped = Popped(found.rows, self._now_ms(), found.due_ms, sum(found.rest.values()))
        popped = popped._replace(rows=_fitting(found.rows, wanted.command.max_bytes), type=wanted.topic.settings.type)
        if more := found.rows[len(popped.rows) :]:
            self._given_back(wanted.group.name, popped._replace(rows=more))
        if wanted.command.session and popped.rows:
            ids = ((row[5].decode(), fields.text(row[0], fields.MESSAGE_ID)) for row in popped.rows)
            self.held.add(wanted.command.client_id, wanted.group.name, ids)
        if (key := key_of(wanted.command)) is not None:
            self.attempts.answered(key, popped)
        return popped

    # ── What is not delivered ────────────────────────────────────────────────────────────────────────────────────────

    async def _finish(self, delivery: SignedDelivery, group: str) -> None:
        request = popping.ack(delivery.topic, names.broker_group(group), delivery.handle)
        await self._brokers.call(Asked(delivery.handle.broker, group=group), request, succeeded)

    async def _bury(self, delivery: SignedDelivery, wanted: Wanted, each: PoppedMessage) -> None:
        await self._dead.bury(
            delivery, wanted.group.name, each.message, each.properties, attempts=each.attempt - 1, reason=USED_UP
        )

    def _unheard(self, group: str, task: "asyncio.Task[Popped]") -> None:
        """Gives the messages of a caller that has gone back, so that others get them at once."""
        if not task.cancelled() and task.exception() is None:
            self._given_back(group, task.result())

    def give_back(self, command: Pop, popped: Popped) -> None:
        """The answer has no room: its messages are for others, and a repeat gets others."""
        if (key := key_of(command)) is not None:
            self.attempts.forget(key)
        self._given_back(command.group, popped)

    def _given_back(self, group: str, popped: Popped) -> None:
        handles = [handle.decode() for handle in popped.handles if handle]
        for handle in handles:
            self.held.remove(handle)
        self._at_brokers.release((self._handles.read(handle, group) for handle in handles), group)

    def close_waits(self) -> None:
        """Answers the pops that wait: the process stops."""
        self.waits.close()

    async def close(self) -> None:
        """Waits for the pops that are under way."""
        await self._at_brokers.close()


def _fitting(rows: list[PoppedRow], bytes_max: int) -> list[PoppedRow]:
    """All rows, or the first ones that have no more bytes if all have twice as many; at least one."""
    if bytes_of(rows) <= 2 * bytes_max:
        return rows
    sizes = itertools.accumulate(len(row[0]) for row in rows)
    return rows[: max(1, sum(size <= bytes_max for size in sizes))]
