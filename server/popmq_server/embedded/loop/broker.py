"""The embedded engine: one store, one writer, one event loop. Owns all live components and their open and close order.

open    lock the folder → open the store → scan → writer thread        (the server opens its ports after that, last)
close   (the server has closed its ports) → wake the parked → writer drains → store syncs → folder unlocked
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Collection, Coroutine
from typing import Any, NamedTuple, cast

from popmq_server.clock import Clock
from popmq_server.contract.commands import (
    AskClient,
    Assignment,
    AssignmentOf,
    Available,
    ChangeInvisibleTime,
    Check,
    Clients,
    EveryOperation,
    GetResults,
    Heartbeat,
    LockQueues,
    Piece,
    Pop,
    Popped,
    Pull,
    Pulled,
    Ready,
    ResultsFound,
    Send,
    SendBack,
    Settle,
    Stage,
    TopicsOf,
    UnlockQueues,
    queries,
)
from popmq_server.contract.commands.numbers import (
    ClientNumbers,
    ClusterBrokers,
    EngineInfo,
    GroupNumbers,
    Rows,
    StoreNumbers,
)
from popmq_server.contract.commands.queries import Listing
from popmq_server.contract.commands.sessions import ClientAnswer
from popmq_server.contract.engine import RoomForAnswers
from popmq_server.contract.operations import A, Command, Handled, Operation, Query
from popmq_server.embedded.invariants.listed import BY_NAME
from popmq_server.embedded.loop import listings
from popmq_server.embedded.loop.afterwards import AFTERWARDS
from popmq_server.embedded.loop.backup_stream import backup
from popmq_server.embedded.loop.consumers import Consumers
from popmq_server.embedded.loop.hashes import with_hashes
from popmq_server.embedded.loop.in_pieces import BY_PIECES, InPieces, any_later, release_of
from popmq_server.embedded.loop.listings import BY_LISTINGS
from popmq_server.embedded.loop.long_poll import Key, Waiters, waited, with_handles
from popmq_server.embedded.loop.parked_pulls import ParkedPulls
from popmq_server.embedded.loop.parked_results import ParkedResults
from popmq_server.embedded.loop.producers import CheckStream, Producers
from popmq_server.embedded.loop.reading_ahead import ReadingAhead
from popmq_server.embedded.operations import CountChecks, Listen, StoreState, TopicNames
from popmq_server.embedded.rules.lite import lite_pop
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.writer.admitted import Admitted
from popmq_server.embedded.writer.batch import READS, Committed, answer_bytes, numbers_of
from popmq_server.embedded.writer.core import BY_CORE, BY_WRITER, Core
from popmq_server.embedded.writer.writer import Writer
from popmq_server.errors import Later, Refused, client_not_found
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options, Unnamed
from popmq_server.values.handles import read_transaction
from popmq_server.values.leased import Leased

log = logging.getLogger("popmq.broker")

#: Commands with messages.
_HASHED = frozenset({Send, Stage, Settle})
#: How long a Pop without a wait time may search for a matching message.
LOOK_MS = 2_000


class Ticket(NamedTuple):
    """The future of a command that was submitted to the writer, and the bytes that it counts for."""

    future: "asyncio.Future[Any]"  # of the answer, which each command has of its own type
    bytes: int
    command: Operation[object]


class EmbeddedEngine(InPieces):
    """The embedded implementation of Engine (engine.py). Make and use it inside one event loop."""

    def __init__(
        self,
        options: Options,
        clock: Clock,
        metrics: Metrics,
        *,
        note_faults: bool = False,
        room: RoomForAnswers | None = None,
    ) -> None:
        """`room`: of the answers; None: without limits."""
        self._room = room
        self.clock = clock
        self.metrics = metrics
        self._loop = asyncio.get_running_loop()
        #: What this turn of the event loop has still to run; if the loop does not tell, no command runs at once.
        self._ready: Collection[object] = getattr(self._loop, "_ready", (None,))
        named, journaled = not isinstance(options.max_size, Unnamed), options.journal == "on"
        limit, sync = options.max_size, options.sync
        store = Store(options.data, limit, sync, named=named, note_faults=note_faults, journaled=journaled)
        super().__init__(store)
        self._core = Core(store, clock)
        metrics.watch_failures((job.name for job in self._core.timetable.jobs), BY_NAME)
        #: Pops of all queues: a commit wakes one per group.
        self.waiters = Waiters(clock, wake_all=False)
        #: Pops of specific queues, and WaitAvailable: a commit wakes all of them, and each checks for itself.
        self.watchers = Waiters(clock, wake_all=True)
        #: Pops of either kind that found messages while the topic's quota was used up; they wait until it permits one.
        self.quota_waiters: Waiters = Waiters(clock, wake_all=False)
        self.pulls = ParkedPulls(clock, self)
        self.results = ParkedResults(clock, self)
        self.consumers: Consumers = Consumers(clock, self)
        self.producers = Producers(self._tell_listened, self._count_check)
        self._listened: frozenset[str] | None = frozenset()
        here = self._delivered_here if journaled else None
        self._writer = Writer[Ticket](self._core, clock, self._deliver, self._failed, self._loop.call_soon, here)
        self._admitted = Admitted()
        self._reading = ReadingAhead(self._submit)
        self._topics: dict[int, str] = {}  # names by id, never removed: ids are not reused
        self.failed: asyncio.Future[BaseException] = self._loop.create_future()
        self._unsubscribe = clock.subscribe(self._clock_moved)
        self._writer.start()

    def _deliver(self, tickets: list[Ticket], committed: Committed) -> None:
        """Called on the writer thread; schedules one loop callback for the whole commit."""
        self._count(committed)
        self._loop.call_soon_threadsafe(self._answer, tickets, committed)

    def _delivered_here(self, tickets: list[Ticket], committed: Committed) -> None:
        """Called on the event loop's thread, for a command that ran there."""
        self._count(committed)
        self._answer(tickets, committed)

    def _count(self, committed: Committed) -> None:
        self.metrics.committed(numbers_of(committed))

    def _at_once(self, command: Operation[object]) -> list[Any] | None:
        """The answer to a command that ran on this thread, before any other; None: it has had no effect."""
        if self._ready or (committed := self._writer.at_once(command, self._count)) is None:
            return None
        self._wake(committed)
        return committed.results

    def _answer(self, tickets: list[Ticket], committed: Committed) -> None:
        """Resolves the futures of one commit batch, then wakes waiters."""
        self._admitted.leave(tickets)
        for ticket, result in zip(tickets, committed.results, strict=True):
            follow = AFTERWARDS.get(type(ticket.command))
            if follow and not isinstance(result, BaseException):
                follow(self, ticket.command)
            if ticket.future.done():
                self._unheard(ticket.command, result)
            elif isinstance(result, BaseException):
                ticket.future.set_exception(result)
            else:
                ticket.future.set_result(result)
        self._wake(committed)

    def _wake(self, committed: Committed) -> None:
        """Wakes the waiters that have to look again after a commit."""
        self.waiters.wake(committed.woken, committed.served)
        self.watchers.wake(committed.woken)
        self.pulls.wake(committed.arrived, committed.woken)
        if committed.resulted:
            self.results.wake(committed.resulted)
        if committed.timed.checks:
            self.producers.hand(committed.timed.checks)

    def _failed(self, error: BaseException) -> None:
        """Called on the writer thread: a commit failed for good, and the process has to end."""

        def tell() -> None:
            if not self.failed.done():
                self.failed.set_result(error)

        self._loop.call_soon_threadsafe(tell)

    def _clock_moved(self) -> None:
        """Called on the thread that moved a fake clock; the loop then checks the deadlines of waits."""
        for lot in (self.waiters, self.watchers, self.quota_waiters, self.pulls.waiters, self.results.waiters):
            self._loop.call_soon_threadsafe(lot.tick)

    def execute(self, command: Command[A]) -> Coroutine[object, object, A]:
        """Runs one command; the answer has been committed. Raises Refused."""
        kind = type(command)
        return cast(Coroutine[object, object, A], _WHOLE[kind](self, command)) if kind in _WHOLE else self.run(command)

    def ask(self, query: Query[A]) -> Coroutine[object, object, A]:
        """Answers one query; the numbers of groups get those that only the event loop has."""
        kind = type(query)
        return cast(Coroutine[object, object, A], _WHOLE[kind](self, query)) if kind in _WHOLE else self.run(query)

    async def run(self, operation: Operation[A]) -> A:
        """Runs one command or query in one commit. Raises Refused.

        The admitted ones are bounded (admitted.py): callers get BUSY before the process runs out of memory. An
        answer with messages needs room (contract/engine.py).
        """
        room = self._room if type(operation) in READS else None
        if room is not None:
            room.check()
        command: Operation[object] = operation
        if command.__class__ in _HASHED:
            command = with_hashes(command)  # type: ignore[arg-type]  # one of these types
        topic = command.topic if command.__class__ is Send else ""
        joined = topic in self.waiters.by_topic and self.waiters.wake_early(topic)
        results: list[A] = (None if joined else self._at_once(command)) or [await self._answer_of(command)]
        if isinstance(results[0], BaseException):
            raise cast(BaseException, results.pop())  # its traceback has this frame: no local may keep it
        if room is not None:
            try:
                room.hold(answer_bytes(results[0]))
            except Refused:
                self._unheard(command, results[0])
                raise
        return results[0]

    async def _answer_of(self, command: Operation[object]) -> Any:
        """Queues a command, and waits for its answer. Raises Refused."""
        size = self._admitted.admit(command)
        future: asyncio.Future[object] = self._loop.create_future()
        ticket = Ticket(future, size, command)
        self._writer.submit(command, ticket)
        try:
            return await future
        except asyncio.CancelledError:
            # If the answer came in the same turn of the loop, `_answer` still saw a caller and released nothing.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._unheard(command, future.result())
            raise
        finally:
            del ticket, future  # the future has the refusal, whose traceback has this frame

    async def groups(self, query: queries.Groups) -> Rows[GroupNumbers]:
        """The list of groups, with parked calls and sessions."""
        return await listings.joined_by(self._some_groups, query)

    async def _some_groups(self, query: Listing[GroupNumbers]) -> Rows[GroupNumbers]:
        lots, sessions = (self.waiters, self.watchers, self.quota_waiters), self.consumers.sessions
        found = await self.run(query)
        rows = Rows[GroupNumbers](after=found.after)
        for row in found:
            parked = sum(lot.parked(row.group, row.topic) for lot in lots)
            rows.append(row._replace(parked=parked, sessions=sessions.count(row.group)))
        return rows

    async def run_piece(self, operation: Operation[A]) -> A:
        """The answer of one commit to the rest of a call that was admitted: not refused with BUSY."""
        future: asyncio.Future[A] = self._loop.create_future()
        self._writer.submit(operation, Ticket(future, self._admitted.enter(operation), operation))
        return await future

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Pops, and parks while no message is deliverable. A Pop with a token never parks, because its set is sealed.

        Each look is an ordinary command. Between two looks a parked Pop holds no read transaction and no thread, only a
        future and an entry in a lot. A look that a sparse filter cut short is repeated at once, after the commands
        submitted meanwhile: a Pop parks only after it has searched everything. When the wait ends although
        messages are there, the Pop is refused with the reason.
        """
        key = (command.group, lite_pop.parked_at(command))
        deadline_ms = self.clock.now_ms() + wait_ms
        look_until_ms = self.clock.now_ms() + max(wait_ms, LOOK_MS)
        chained = False  # after a wait for the quota the next message that it permits wakes the next waiter
        while True:
            seen = {here: here.generation(key) for here in (self.waiters, self.watchers, self.quota_waiters)}
            try:
                popped = cast(Leased, await self.run(command))  # the handler's answer, without handles
            except (Refused, asyncio.CancelledError):
                for here in seen:
                    here.hand_on(key)  # a refused or cancelled Pop must not swallow a wake
                self.waiters.looked(key, None)
                raise
            self.waiters.looked(key, popped)
            if popped.behind:
                self._reading.go_on(command.topic, command.group)
            lot = self.watchers if command.queues or popped.named else self.waiters
            if popped.again and self.clock.now_ms() < look_until_ms:
                continue
            if popped.again or popped.replay:
                lot.hand_on(key)  # it took nothing of what it may have been woken for
            if chained:
                self.quota_waiters.wake_at(key, popped.quota_ms)
            if popped.again or popped.rows or command.token is not None or popped.replay:
                return with_handles(popped, command.handles)
            chained = popped.quota_ms > popped.popped_ms
            if not (wait_ms and await self._park(key, lot, popped, seen, deadline_ms)):
                return waited(popped, self.clock.now_ms())

    async def _park(
        self, key: Key, lot: Waiters, popped: Leased, seen: dict[Waiters, tuple[int, int]], deadline_ms: int
    ) -> bool:
        """Waits for messages, or until the quota permits the next one. True: look again.

        A message that it permits exactly at the deadline still counts.
        """
        if popped.quota_ms <= popped.popped_ms:
            look_ms = popped.look_ms or deadline_ms  # sends of other keys wake it too, so it waits with the others
            woken = await lot.park(key, seen[lot], min(deadline_ms, look_ms))
            return woken or look_ms <= min(deadline_ms - 1, self.clock.now_ms())
        if popped.quota_ms <= self.clock.now_ms():
            return True
        self.quota_waiters.wake_at(key, popped.quota_ms)
        woken = await self.quota_waiters.park(key, seen[self.quota_waiters], deadline_ms)
        return woken or popped.quota_ms <= self.clock.now_ms()

    def _unheard(self, command: Operation[object], result: object) -> None:
        """Does what is left of a command whose caller has left.

        What a Pop leased is visible again at once, attempt not counted. With a token, or with an attempt id unless
        `release_if_gone` is set, it keeps the lease: the caller may retry the Pop and get the same messages. What did
        not fit into one commit is done in the next ones.
        """
        if isinstance(result, Leased) and isinstance(command, Pop):
            if result.rows and command.token is None and (command.release_if_gone or not command.attempt_id):
                release = release_of(command, result)
                self.carry_on(release, [Later()] * len(release.changes))
        elif isinstance(command, ChangeInvisibleTime | SendBack) and any_later(result):
            self.carry_on(command, cast(list[object], result))

    def _submit(self, command: Operation[object]) -> "asyncio.Future[object]":
        """Submits a command without awaiting its answer."""
        future: asyncio.Future[object] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._writer.submit(command, Ticket(future, self._admitted.enter(command), command))
        return future

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Ready:
        """Answers once `min_ready` are there or the wait ends. Takes no wake from a Pop."""
        key = (command.group, command.topic)
        deadline_ms = self.clock.now_ms() + wait_ms
        while True:
            seen = self.watchers.generation(key)
            answer = await self.run(command)
            if answer.ready >= min_ready or not wait_ms or not await self.watchers.park(key, seen, deadline_ms):
                return answer

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Pulls, and waits up to `wait_ms` while the queue is at its end."""
        return await self.pulls.pull(command, wait_ms)

    async def get_results(self, asked: GetResults) -> ResultsFound:
        """Results, with a wait for those that are not there."""
        return await self.results.get(asked)

    async def pop_now(self, command: Pop) -> Popped:
        """Pops without waiting."""
        return await self.pop(command, 0)

    async def assignment(self, asked: AssignmentOf) -> Assignment:
        """The queues assigned to a client."""
        return await self.consumers.assignment(asked)

    async def ask_client(self, asked: AskClient) -> ClientAnswer:
        """Raises Refused: protocols ask a connected client themselves, and no other process has clients."""
        raise client_not_found(asked.client)

    async def heartbeat(self, beat: Heartbeat) -> int:
        """Renews or ends a session."""
        return await self.consumers.heartbeat(beat)

    async def lock_queues(self, asked: LockQueues) -> list[int]:
        """Locks or renews queues for a client; returns all that it holds now."""
        return await self.consumers.lock(asked)

    async def unlock_queues(self, asked: UnlockQueues) -> None:
        """Unlocks queues of the client."""
        await self.consumers.unlock(asked)

    async def clients(self, asked: Clients) -> ClientNumbers:
        """Consumers of one group or of all; for all, also the producer streams, which have no group."""
        consumers = await self.consumers.listed(asked)
        full = 0 < asked.rows_max <= len(consumers)
        return ClientNumbers(consumers, [] if asked.group or full else self.producers.streams())

    async def join(self, client: str, topics: tuple[str, ...]) -> CheckStream:
        """Registers a live producer that answers checks for these topics, until it is closed."""
        stream = CheckStream(self.producers, client, frozenset(topics), self.clock.now_ms())
        self.producers.join(stream)
        self._listened = self.producers.listened()
        try:
            await self.run(Listen(self._listened, topics))
        except BaseException:
            self._listened = None  # the command failed: the writer may know another set
            stream.close()
            raise
        return stream

    async def topics_of(self, asked: TopicsOf) -> frozenset[str]:
        """The topics of these transactions, from their ids."""
        topic_ids = {known.topic_id for text in asked.transactions if (known := read_transaction(text))}
        if unknown := topic_ids - self._topics.keys():
            self._topics |= await self.run(TopicNames(tuple(unknown)))
        return frozenset(self._topics[topic_id] for topic_id in topic_ids & self._topics.keys())

    def _tell_listened(self) -> None:
        """Sends the writer the topics whose half messages a producer can check now."""
        listened = self.producers.listened()
        if listened != self._listened:
            self._listened = listened
            self._submit(Listen(listened))

    def _count_check(self, check: Check) -> "asyncio.Future[object]":
        """Counts a check that was written to a live producer."""
        self.metrics.checks.inc()
        return self._submit(CountChecks(((check.transaction, check.number),)))

    async def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """Streams a copy of the store; the writer continues."""
        await self._aside.fold()
        async with contextlib.aclosing(backup(self.store, bytes_per_s, self._used_pages)) as pieces:
            async for piece in pieces:
                yield piece

    async def _used_pages(self) -> int:
        return (await self.run(StoreState())).pages

    def info(self) -> EngineInfo:
        """This engine has every capability."""
        return EngineInfo("embedded")

    async def store_numbers(self, _: queries.StoreSize) -> StoreNumbers:
        """Sizes of the store, in bytes."""
        use, store = await self.run(StoreState()), self.store
        return StoreNumbers(store.map_bytes, use.pages * store.page_bytes, store.disk_free(), use.quarantined)

    async def brokers(self, _: queries.Brokers) -> ClusterBrokers:
        """None: this engine keeps the messages itself."""
        return ClusterBrokers()

    @property
    def store(self) -> Store:
        """The open store, for statistics."""
        return self._core.store

    def close_waits(self) -> None:
        """Answers the parked calls and ends the producer streams: the broker stops."""
        self.waiters.close()
        self.watchers.close()
        self.quota_waiters.close()
        self.pulls.waiters.close()
        self.results.waiters.close()
        self.producers.close()

    async def close(self) -> None:
        """Lets the writer drain, then closes the store and unlocks the folder."""
        self.close_waits()
        self._unsubscribe()
        with contextlib.suppress(Refused):  # answered behind all that callers left behind: `_unheard` saw it then
            await self._submit(StoreState())
        while self._carried_on:
            await asyncio.wait(self._carried_on)
        await self._aside.close()
        await asyncio.to_thread(self._writer.stop)
        self._core.close()


#: Handlers that run on the event loop; the other commands go to the writer (core.py).
BY_LOOP = (
    BY_PIECES
    | BY_LISTINGS
    | Pop.awaited_by(EmbeddedEngine.pop_now)
    | GetResults.awaited_by(EmbeddedEngine.get_results)
    | Heartbeat.awaited_by(EmbeddedEngine.heartbeat)
    | LockQueues.awaited_by(EmbeddedEngine.lock_queues)
    | UnlockQueues.awaited_by(EmbeddedEngine.unlock_queues)
    | AssignmentOf.awaited_by(EmbeddedEngine.assignment)
    | AskClient.awaited_by(EmbeddedEngine.ask_client)
    | Clients.awaited_by(EmbeddedEngine.clients)
    | TopicsOf.awaited_by(EmbeddedEngine.topics_of)
    | queries.StoreSize.awaited_by(EmbeddedEngine.store_numbers)
    | queries.Brokers.awaited_by(EmbeddedEngine.brokers)
    | queries.Groups.awaited_by(EmbeddedEngine.groups)
)
_WHOLE = BY_LOOP.handlers

_EVERY = BY_WRITER | BY_CORE | BY_LOOP
#: A type checker refuses this line while a command or query of the contract has no handler.
COMPLETE: Handled[EveryOperation] = _EVERY
