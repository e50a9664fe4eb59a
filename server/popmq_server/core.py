"""Group commit: all commands that wait run in one transaction; they are answered after its commit.

    run:  acks, renewals …  →  revive, housekeeping  →  sends  →  chunks written  →  pops  →  flush  →  commit  →  merge

A command that raises after it wrote is taken out and answered, and the others run again in a fresh transaction: one bad
request cannot hurt its neighbours (I.28). A commit that fails while the disk is full refuses what needs room and tries
the rest once; one that fails with room on the disk is final: CommitFailed, and a restart recovers what is on disk.

What fails, and what becomes of the others:

    a command refuses before it wrote      it is answered, nothing else happens
    a command refuses or raises later      it is answered, the group runs again without it
    the map is full at a put               the same: STORAGE_FULL for the command that met it
    a piece of a job raises                the job, or the lease or topic that it was at, is postponed: jobs.py
    the commit meets a full disk           the reserve is given back, what needs room is refused, the rest runs again
    that fails as well                     UNAVAILABLE for all; leases that are due wait RETRY_MS
    the commit fails with room on disk     UNAVAILABLE for all, and the process ends

No thread and no socket here: `Core.run` is a function of (store, commands, clock), which is how the tests drive it.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from popmq_server import (
    catalog,
    checking,
    consume_mode,
    delay,
    ending,
    expiry,
    firing,
    housekeeping,
    jobs,
    lease,
    lite_pop,
    lite_sync,
    look_up,
    message_groups,
    offsets,
    owner,
    peek,
    pop,
    pull,
    purge,
    rebase,
    redrive,
    revive,
    send,
    send_back,
    session_lease,
    stats,
    subscription,
    topic,
    trace,
    why,
    widening,
)
from popmq_server.clock import Clock, stopwatch
from popmq_server.commands import (
    LANE_ACK,
    LANE_POP,
    LANES,
    NEEDS_ROOM,
    Ack,
    AckUpTo,
    AttachOwner,
    Attend,
    Available,
    ChangeInvisibleTime,
    CloneOffsets,
    CountChecks,
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    EndTransaction,
    FindLetters,
    Listen,
    Look,
    LookUp,
    Peek,
    Pop,
    Pull,
    PurgeTopic,
    QueryOffsets,
    Recall,
    Redrive,
    ReleaseOwner,
    ReleaseSession,
    RenewOwner,
    RenewSession,
    ResetOffsets,
    ResumeMessageGroup,
    Send,
    SendBack,
    SetConsumeMode,
    SetFilter,
    Sweep,
    SyncLite,
    Trace,
    UpdateGroup,
    UpdateOffsets,
    UpdateTopic,
    Why,
)
from popmq_server.errors import CommitFailed, Refused, storage_full, unavailable
from popmq_server.events import Event, Reporter
from popmq_server.jobs import RETRY_MS, Timed
from popmq_server.state import State
from popmq_server.storage.lmdb import DISK_FREE_POP, DISK_FREE_SEND, USED_SHARE_MAX, DiskFault, MapFull, Store
from popmq_server.tx import Tx

log = logging.getLogger("popmq.core")

#: Above this share of the map pops are refused too: what is left is for acks, deletes and the revive.
USED_SHARE_POP_MAX = 0.95
#: Groups between two looks at the space: a look costs 30 µs. Full or half full, every group looks.
LOOK_AT_SPACE_EVERY = 32
LOOK_AT_SPACE_S = 0.1
#: The broker's time is saved at most so often.
SAVE_TIME_MS = 1000


def _pop(tx: Tx, command: Pop) -> Any:
    if command.lite is not None:
        return lite_pop.pop(tx, command)
    return owner.pop(tx, command, command.token) if command.token else pop.pop(tx, command)


HANDLERS: dict[type, Callable[[Tx, Any], Any]] = {
    Send: send.send,
    Pop: _pop,
    Ack: lease.ack,
    ChangeInvisibleTime: lease.change,
    AttachOwner: owner.attach,
    RenewOwner: owner.renew,
    AckUpTo: owner.ack_up_to,
    ReleaseOwner: owner.release,
    RenewSession: session_lease.renew,
    ReleaseSession: session_lease.release,
    Available: owner.available,
    CreateTopic: catalog.create_topic,
    UpdateTopic: catalog.update_topic,
    DeleteTopic: catalog.delete_topic,
    PurgeTopic: purge.purge_topic,
    CreateGroup: catalog.create_group,
    UpdateGroup: catalog.update_group,
    DeleteGroup: catalog.delete_group,
    SetFilter: subscription.set_filter,
    Look: stats.look,
    ResumeMessageGroup: message_groups.resume,
    Pull: pull.pull,
    UpdateOffsets: offsets.update,
    QueryOffsets: offsets.query,
    ResetOffsets: offsets.reset,
    CloneOffsets: offsets.clone,
    SetConsumeMode: consume_mode.set_consume_mode,
    SendBack: send_back.send_back,
    Attend: expiry.attend,
    Sweep: offsets.go_on,
    SyncLite: lite_sync.sync,
    Recall: delay.recall,
    EndTransaction: ending.end,
    CountChecks: checking.count,
    Listen: checking.listen,
    Redrive: redrive.redrive,
    FindLetters: redrive.find,
    LookUp: look_up.look_up,
    Peek: peek.peek,
    Trace: trace.trace,
    Why: why.lives,
}


class Committed(NamedTuple):
    """What one `run` did."""

    results: list[Any]  # an answer or an exception for each command
    woken: set[tuple[str | None, str]]
    wrote: bool  # whether there was anything to commit
    seconds: float = 0.0  # the whole group, fsync included
    timed: Timed = Timed([], [], [], [])
    arrived: Collection[tuple[str | None, str]] = ()  # queues that became longer
    events: Sequence[Event] = ()  # for the metrics; they are in the log already


class _Poisoned(Exception):
    """A command wrote and then raised: the transaction cannot be used."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


class Core:
    """The engine without threads: owns the state, runs commands in groups."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Scans what must be known (never history); the clock is anchored to the saved time."""
        self.store = store
        self.clock = clock
        self.state = State()
        self.next_due_ms: int | None = None
        self._space_turn = 0
        self._space_seen = 0.0
        self._known_space = (0, 1.0)
        self.stuck = 0
        self._reporter = Reporter()
        try:
            self._load()
        except BaseException:
            store.close()
            raise
        self.firing, self.checking = firing.Firing(), checking.Checking()
        tidying = (*housekeeping.jobs(clock.now_ms()), widening.Widening(clock.now_ms()))
        self.timetable = jobs.Timetable((*tidying, self.firing, self.checking, revive.Reviving()))
        self._look_ahead()

    def _load(self) -> None:
        """Reads the state. A store that cannot be read keeps its format, for the release that wrote it."""
        saved_ms = self._read()
        if ahead_ms := self.clock.ahead_ms(saved_ms):
            rebase.rebase(self.store, saved_ms - ahead_ms, ahead_ms)
            self.state = State()
            saved_ms = self._read()
        self.clock.anchor(saved_ms)
        self.store.adopt()

    def _read(self) -> int:
        """Loads the state; the time that was saved last."""
        tx = self.store.begin(write=False, views=False)
        try:
            self.state.load(tx)
            return self.state.counters[""].saved_ms
        finally:
            tx.abort()

    def _begin(self) -> Tx:
        return Tx(self.state, self.store, self.clock.now_ms(), self.clock.wall_ms())

    def _look_ahead(self) -> None:
        """At start: what became due while nobody was there is due now."""
        tx = self._begin()
        try:
            self.next_due_ms = self.timetable.next_ms(tx)
        finally:
            tx.abort()

    def run(self, commands: list[Any]) -> Committed:
        """Runs a group; every command gets an answer or an exception. Raises CommitFailed: end the process.

        `order` is stable within a lane, so requests of one client keep their order. The loop ends because each round
        takes a command out, postpones a lease, or uses up one of the two tries that a full disk has.
        """
        results: list[Any] = [None] * len(commands)
        order = sorted(range(len(commands)), key=lambda place: LANES.get(type(commands[place]), LANE_ACK))
        refuse_room: Refused | None = None
        began = stopwatch()
        while True:
            tx = self._begin()
            try:
                timed = self._run(tx, commands, order, results, refuse_room)
                return self._commit(tx, results, timed)._replace(seconds=stopwatch() - began)
            except _Poisoned as poisoned:
                tx.abort()
                order.remove(poisoned.place)
            except jobs.JobFailed as failure:
                tx.abort()
                self._report(failure)
                failure.job.failed(failure, tx.now_ms)
            except (MapFull, DiskFault) as fault:
                tx.abort()
                if refuse_room is not None:
                    return self._give_up(order, results)
                refuse_room = self._after_fault(fault)
            except BaseException:
                tx.abort()
                raise

    def _run(
        self, tx: Tx, commands: list[Any], order: list[int], results: list[Any], refuse_room: Refused | None
    ) -> Timed:
        """Runs the commands lane by lane; time has its turn between acks and sends, so that an ack beats the
        revive.
        """
        room = self._refusals(tx, refuse_room)
        timed: Timed | None = None
        for place in order:
            lane = LANES.get(type(commands[place]), LANE_ACK)
            if timed is None and lane > LANE_ACK:
                timed = self._timed(tx, refuse_room)
            if lane == LANE_POP and tx.staged:
                topic.flush(tx)
            refusal = room(commands[place]) if room else None
            results[place] = refusal or self._handle(tx, commands[place], place, results)
        if timed is None:
            timed = self._timed(tx, refuse_room)
        topic.flush(tx)
        return timed

    def _handle(self, tx: Tx, command: Any, place: int, results: list[Any]) -> Any:
        """One command. It may raise before it wrote (a plain refusal) or after (the group must run again without
        it).
        """
        before = tx.dirty
        try:
            return HANDLERS[type(command)](tx, command)
        except MapFull:
            results[place] = storage_full("the map is full (--max-size)")
            raise _Poisoned(place) from None
        except Refused as refused:
            results[place] = refused
        except Exception:
            log.exception("a %s command raised; it is answered INTERNAL, its neighbours go on", type(command).__name__)
            results[place] = Refused(
                "INTERNAL",
                f"the broker failed on this {type(command).__name__}",
                action="report it with the broker's log",
            )
        if tx.dirty != before:
            raise _Poisoned(place)
        return results[place]

    def _report(self, failure: jobs.JobFailed) -> None:
        """A full map is no fault of the broker, and is told where commands are refused for it."""
        if not failure.full:
            self.stuck += 1
            log.exception("%s failed; it is tried again in %d s", failure, jobs.POSTPONE_MS // 1000)

    def _timed(self, tx: Tx, refuse_room: Refused | None) -> Timed:
        """What time asks for, in bounded pieces.

        What appends messages waits while there is no room for pops: an ack must not fail for it.
        """
        did = Timed([], [], [], [])
        if self.next_due_ms is None or self.next_due_ms > tx.now_ms:
            return did
        free, used = self._known_space
        if refuse_room is not None or free < DISK_FREE_POP or used >= USED_SHARE_POP_MAX:
            self.firing.postpone(tx.now_ms + RETRY_MS)
            self.checking.postpone(tx.now_ms + RETRY_MS)
        self.timetable.run(tx, did)
        return did

    def _refusals(self, tx: Tx, refuse_room: Refused | None) -> Callable[[Any], Refused | None] | None:
        """None when there is room; else what to answer to a command.

        Asked once for a group: the answer may be one group old, which the reserves of 15 % and 256 MiB are there for.
        """
        if refuse_room is not None:
            return lambda command: refuse_room if isinstance(command, NEEDS_ROOM) else None
        free, used = self._space(tx)
        if free >= DISK_FREE_SEND and used < USED_SHARE_MAX:
            return None
        why = self._why_full(free, used)
        pops = free < DISK_FREE_POP or used >= USED_SHARE_POP_MAX
        return lambda command: storage_full(why) if isinstance(command, NEEDS_ROOM if pops else Send) else None

    def _space(self, tx: Tx) -> tuple[int, float]:
        """(free bytes of the disk, used share of the map); while there is room not asked anew in every group."""
        self._space_turn -= 1
        stale = self._space_turn < 0 or stopwatch() - self._space_seen > LOOK_AT_SPACE_S
        if stale or self._known_space[0] < DISK_FREE_SEND or self._known_space[1] >= USED_SHARE_MAX / 2:
            self._space_turn, self._space_seen = LOOK_AT_SPACE_EVERY, stopwatch()
            self._known_space = self.store.disk_free(), self.store.used_pages(tx.kv) / self.store.map_pages
            self.store.reserve.fill(self._known_space[0], DISK_FREE_SEND)
        return self._known_space

    def _why_full(self, free: int, used: float) -> str:
        """What is full, and who could free it: the answer names the group that holds the most."""
        holder = stats.greatest_backlog(self.state)
        where = (
            f"the map is {used:.0%} full (--max-size)"
            if used >= USED_SHARE_MAX
            else f"the disk has {free >> 20} MiB left"
        )
        return f"{where}; {holder}" if holder else where

    def _after_fault(self, fault: Exception) -> Refused:
        """What to answer to commands that need room, after a commit that failed; CommitFailed if the disk has room."""
        full = isinstance(fault, MapFull) or self.store.disk_free() < DISK_FREE_SEND
        log.error("a commit failed: %s; %s", fault, "refusing what needs room" if full else "ending")
        if not full:
            raise CommitFailed(f"a commit failed although the disk has room: {fault}") from fault
        self.store.reserve.give()
        self.store.end_copies("a commit found no room")
        return storage_full("the disk or the map is full")

    def _give_up(self, order: list[int], results: list[Any]) -> Committed:
        """Not even what frees room could be written: nothing is promised, and time asks again a little later."""
        for place in order:
            results[place] = unavailable("the disk is full: not even an ack could be written")
        self.next_due_ms = self.clock.now_ms() + RETRY_MS
        return Committed(results, set(), False)

    def _commit(self, tx: Tx, results: list[Any], timed: Timed) -> Committed:
        """Puts what the tables changed, syncs, and only then lets memory know. A group that wrote nothing syncs
        nothing.
        """
        state = tx.state
        wrote = tx.kv.writes > 0 or any(table.changed for table in state.transactional)
        if wrote:
            if tx.now_ms - state.counters[""].saved_ms >= SAVE_TIME_MS:
                state.counters[""] = state.counters[""]._replace(saved_ms=tx.now_ms)
            tx.flush()
            next_due_ms = self.timetable.next_ms(tx)
            tx.kv.commit()
            tx.merge()
            self.next_due_ms = next_due_ms
            self.timetable.committed()
            for sentence in timed.given_up:
                log.warning("%s", sentence)
        else:
            self.next_due_ms = self.timetable.next_ms(tx)
            tx.merge()  # a sign of life of a watch has nothing to commit, and is true all the same
            tx.abort()
        self._reporter.report(tx.events, tx.now_ms)
        return Committed(results, tx.woken, wrote, timed=timed, arrived=tx.arrived, events=tx.events)

    def close(self) -> None:
        """Gives the data folder free; what was answered is on disk."""
        self.store.close()
