"""The calls that the embedded engine runs as pieces of some milliseconds, with other commands in between.

    Peek, LookUp, Why, Redrive …  a piece says where the next one continues       embedded/operations.py
    Search, reasons               beside the writer                               aside.py
    SetConsumeMode, offsets       then Sweep, until nothing of before is left     delivery/sweep.py
    ChangeInvisibleTime …         what one commit left is repeated
    lists                         joined from pieces                              listings.py

Each piece is one command. After a crash between two of them the rest is still there: the caller repeats the call.
"""

import asyncio
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from popmq_server.contract.commands import (
    Change,
    Changed,
    ChangeInvisibleTime,
    CloneOffsets,
    DeadLetterReasons,
    Discard,
    Failure,
    LookedUp,
    LookUp,
    MessageLife,
    OffsetsOfQueue,
    Peek,
    Pop,
    PurgeTopic,
    QueryOffsets,
    ReadRow,
    ReasonsFound,
    Redrive,
    Redriven,
    ReleaseSession,
    Renewed,
    RenewSession,
    ResetOffsets,
    ResumeMessageGroup,
    Search,
    Searched,
    SendBack,
    SetConsumeMode,
    Settle,
    Settled,
    UpdateOffsets,
    Why,
    bytes_of,
)
from popmq_server.contract.commands.numbers import Rows
from popmq_server.contract.operations import A, Command, Operation, Query
from popmq_server.embedded.loop.aside import Aside
from popmq_server.embedded.operations import (
    DiscardPiece,
    FindDeadLetters,
    HolderSearch,
    LookUpPiece,
    ModeSet,
    Moved,
    NextOffsets,
    NextPurge,
    NextRelease,
    NextRenewal,
    PeekPiece,
    Purged,
    RedrivenPiece,
    RedrivePiece,
    Reset,
    SessionPiece,
    Spotted,
    Sweep,
    Trace,
    WhyPiece,
)
from popmq_server.embedded.store.store import Store
from popmq_server.errors import Later, Refused
from popmq_server.values.leased import Leased
from popmq_server.values.records import Subscription

T = TypeVar("T")
#: Runs one piece of a redrive.
Run = Callable[[RedrivePiece | DiscardPiece], Awaitable[RedrivenPiece]]
#: A command whose entries each have a result; one commit may not have room for all.
Entries = ChangeInvisibleTime | SendBack

_ENTRY = re.compile(r"(\w+)\[\d+\]")

#: Places of one id that a Why examines. Its first piece and its last one read each of them, some 20 µs for 1 KB: ids
#: should be unique, and it reports the newest 100 messages only.
SPOTS_MAX = 200
#: Failures that the answer to a Redrive names.
FAILURES_MAX = 4096


class InPieces(ABC):
    """A base class of the embedded engine, which runs one command."""

    def __init__(self, store: Store) -> None:
        self._aside = Aside(store, self)
        #: What goes on without its caller: changes and send-backs of more than one commit, and releases.
        self._carried_on: set[asyncio.Task[object]] = set()

    @abstractmethod
    async def run(self, operation: Operation[A]) -> A:
        """The answer of one commit."""

    @abstractmethod
    async def run_piece(self, operation: Operation[A]) -> A:
        """Runs a further piece of a call. It is never refused with BUSY: that would leave the call half done."""

    @abstractmethod
    def execute(self, command: Command[A]) -> Coroutine[object, object, A]:
        """The whole answer of a command."""

    @abstractmethod
    def ask(self, query: Query[A]) -> Coroutine[object, object, A]:
        """The whole answer of a query."""

    async def _begin(self, command: Operation[object], answer: type[T]) -> T:
        """The first piece of a command whose handler gives such an answer (core.py: begun_by)."""
        return cast(T, await self.run(command))

    async def _go_on(self, command: Operation[object], answer: type[T]) -> T:
        """A further piece of it."""
        return cast(T, await self.run_piece(command))

    # ── Commands that one commit may not finish ──────────────────────────────────────────────────────────────────

    async def change(self, command: ChangeInvisibleTime) -> Sequence[Changed | Renewed | Refused]:
        """Changes deliveries."""
        return await self._all_entries(command, await self.run(command))

    async def send_back(self, command: SendBack) -> Sequence[Changed | Refused]:
        """Sends pulled messages back."""
        return await self._all_entries(command, await self.run(command))

    async def settle(self, command: Settle) -> Settled:
        """Settles, in a later commit if others have written all the dead letters that this one takes."""
        while True:
            try:
                return await self._begin(command, Settled)
            except Later:
                continue

    async def _all_entries(self, command: Entries, first: Sequence[T]) -> Sequence[T]:
        return await asyncio.shield(self.carry_on(command, first)) if any_later(first) else first

    def carry_on(self, command: Entries, results: Sequence[T]) -> "asyncio.Task[list[T]]":
        """Runs the rest of the entries in a task that no caller cancels: `results` has Later for them.

        There is one such task for a call: two would send a message back twice.
        """
        task = asyncio.create_task(self._later_entries(command, results))
        self._carried_on.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[list[T]]") -> None:
        """Takes the exception, which has no reader if the caller has left: the broker stops."""
        self._carried_on.discard(task)
        task.cancelled() or task.exception()

    async def _later_entries(self, command: Entries, results: Sequence[T]) -> list[T]:
        """Repeats the entries that did not fit into one commit, until each has its answer."""
        whole = list(results)
        while left := [index for index, result in enumerate(whole) if isinstance(result, Later)]:
            again: Operation[Sequence[object]]
            if isinstance(command, SendBack):
                again = replace(command, messages=tuple(command.messages[index] for index in left))
            else:
                again = replace(command, changes=tuple(command.changes[index] for index in left))
            for index, result in zip(left, await self.run_piece(again), strict=True):
                whole[index] = cast(T, _numbered(result, index))
        return whole

    async def resume(self, command: ResumeMessageGroup) -> None:
        """Goes on with a stopped message group."""
        left = await self._begin(command, bool)
        while left:
            left = await self._go_on(command, bool)

    async def update_offsets(self, command: UpdateOffsets) -> int:
        """Moves committed offsets; returns how many messages were moved past."""
        moved = await self._begin(command, Moved)
        total = moved.messages
        while moved.left:
            moved = await self._go_on(command, Moved)
            total += moved.messages
        return total

    async def renew(self, command: RenewSession) -> int:
        """Renews the leases of a client; returns their number."""
        return await self._of_session(command, lambda after: NextRenewal(**vars(command), after=after))

    async def release(self, command: ReleaseSession) -> int:
        """Ends the leases of a client; returns their number."""
        return await self._of_session(command, lambda after: NextRelease(command.client, after))

    async def _of_session(self, command: Operation[int], following: Callable[[int], Operation[SessionPiece]]) -> int:
        piece = await self._begin(command, SessionPiece)
        total = piece.leases
        while piece.after:
            piece = await self.run_piece(following(piece.after))
            total += piece.leases
        return total

    async def purge(self, command: PurgeTopic) -> int:
        """Drops all messages of a topic; returns their number."""
        purged = await self._begin(command, Purged)
        total = purged.messages
        while purged.after:
            purged = await self.run_piece(NextPurge(command.name, purged.after))
            total += purged.messages
        return total

    async def query_offsets(self, command: QueryOffsets) -> list[OffsetsOfQueue]:
        """The offsets of all queues; further pieces look for the least committed ones of more groups."""
        rows: Rows[OffsetsOfQueue] = await self._begin(command, Rows)
        found, after = list(rows), rows.after
        while after:
            more = await self.run_piece(NextOffsets(command.topic, command.group, after))
            for index, (row, other) in enumerate(zip(found, more, strict=False)):
                known = [offset for offset in (row.least_committed, other.least_committed) if offset not in (None, -1)]
                found[index] = row._replace(least_committed=min(known, default=-1))
            after = more.after
        return found

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """Switches the consume mode; returns when what was leased or waiting is moved for it."""
        changed = await self._begin(command, ModeSet)
        await self._sweep(command.topic, command.group, changed.left)
        return changed.subscription

    async def move(self, command: ResetOffsets | CloneOffsets) -> dict[int, int]:
        """Resets or clones offsets; returns the next offsets once everything that the group held before is removed."""
        reset = await self._begin(command, Reset)
        await self._sweep(command.topic, command.group, reset.left)
        return reset.offsets

    async def _sweep(self, topic: str, group: str, left: bool) -> None:
        while left:
            left = await self.run_piece(Sweep(topic, group))

    # ── Single messages and dead letters ─────────────────────────────────────────────────────────────────────────

    async def search(self, asked: Search) -> Searched:
        """Messages of all queues in the order of their storing, or those with a text; the writer goes on."""
        return await self._aside.search(asked)

    async def dead_letter_reasons(self, asked: DeadLetterReasons) -> ReasonsFound:
        """The reasons of a group's dead letters, with their numbers; the writer goes on."""
        return await self._aside.reasons(asked)

    async def peek(self, asked: Peek) -> list[ReadRow]:
        """The messages that the next Pop would deliver."""
        piece = PeekPiece(**vars(asked))
        while (answer := await self.run(piece)).begins is not None:
            piece = replace(piece, begins=answer.begins)
        return [row[:5] for row in answer.rows]

    async def look_up(self, asked: LookUp) -> LookedUp:
        """Finds messages by id or key; stops before the end only when the answer is full."""
        piece, rows = LookUpPiece(**vars(asked)), list[ReadRow]()
        while True:
            answer = await self.run(piece)
            rows += answer.rows
            room = piece.bytes_max - bytes_of(answer.rows)
            full = answer.full or (answer.below > 0 and (len(answer.rows) == piece.messages_max or room <= 0))
            if full or not answer.below:
                return LookedUp(rows, full)
            left = piece.messages_max - len(answer.rows)
            piece = replace(piece, below=answer.below, messages_max=left, bytes_max=room)

    async def why(self, asked: Why) -> list[MessageLife]:
        """Finds every place that may hold the message, then reads all its lives in one consistent view."""
        found: list[Spotted] = []
        piece: Trace | None = Trace(**vars(asked))
        while piece is not None and len(found) < SPOTS_MAX:
            answer = await self.run(piece)
            found += answer.found
            piece = replace(piece, at=answer.at) if answer.at is not None else None
        question = WhyPiece(asked.message_id, tuple(found[:SPOTS_MAX]), asked.topic, asked.group)
        while isinstance(lives := await self.run(question), HolderSearch):
            question = replace(question, walk=lives)
        return list(lives)

    async def redrive(self, asked: Redrive) -> Redriven:
        """Redrives some dead letters, or all up to the one that was last at the start: later ones stay."""
        return await self._each(
            asked, RedrivePiece(asked.group, topic=asked.topic, reason=asked.reason, exception=asked.exception)
        )

    async def discard(self, asked: Discard) -> Redriven:
        """Discards dead letters, chosen as in `redrive`."""
        return await self._each(
            asked, DiscardPiece(asked.group, topic=asked.topic, reason=asked.reason, exception=asked.exception)
        )

    async def _each(self, asked: Redrive | Discard, piece: RedrivePiece | DiscardPiece) -> Redriven:
        """Runs pieces until all dead letters that were asked for are handled."""
        done = Redriven({}, [])
        if not (asked.offsets or asked.message_ids):
            await self._all_letters(piece, done)
            return done
        found = await self._find(asked.group, asked.message_ids)
        unknown = sorted(asked.message_ids - set(found.values()))
        _add(done, {}, [Failure(-1, message_id, _no_dead_letter(message_id, asked.group)) for message_id in unknown])
        offsets = tuple(dict.fromkeys((*asked.offsets, *sorted(found))))
        run: Run = self.run
        while offsets:
            answer = await self._redriven(replace(piece, offsets=offsets), run)
            run = self.run_piece
            _add(done, answer.topics, answer.failures)
            offsets = offsets[answer.done :]
        return done

    async def _find(self, group: str, message_ids: frozenset[str]) -> dict[int, str]:
        """The dead letters with these ids, by offset."""
        found: dict[int, str] = {}
        piece = FindDeadLetters(group, message_ids)
        while message_ids and piece.below != 0:
            letters = await self.run(piece)
            found |= letters.message_ids
            piece = replace(piece, below=letters.below)
        return found

    async def _all_letters(self, piece: RedrivePiece | DiscardPiece, done: Redriven) -> None:
        run: Run = self.run
        while True:
            answer = await self._redriven(piece, run)
            run = self.run_piece
            _add(done, answer.topics, answer.failures)
            if answer.next >= answer.stop:
                return
            piece = replace(piece, start=answer.next, stop=answer.stop)

    async def _redriven(self, piece: RedrivePiece | DiscardPiece, run: Run) -> RedrivenPiece:
        """The answer of one piece, once it is known what is leased. `run`: only the first piece may be refused."""
        answer: RedrivenPiece = await run(piece)
        while answer.walk is not None and isinstance(piece, RedrivePiece):
            answer = await self.run_piece(replace(piece, walk=answer.walk))
        return answer


def any_later(results: object) -> bool:
    """Whether some entries of an answer did not fit into its commit."""
    return isinstance(results, list) and any(isinstance(result, Later) for result in results)


def release_of(command: Pop, popped: Leased) -> ChangeInvisibleTime:
    """The command that undoes a Pop whose caller has left.

    See docs/decisions/0021-cancelled-pops.md.
    """
    changes = tuple(Change(text.decode(), "release", 0, True, "the caller went away") for text in popped.texts)
    return ChangeInvisibleTime(command.group, changes)


def _numbered(result: object, index: int) -> object:
    """The result of a repeated entry; a refusal names it by its place in the whole request."""
    if isinstance(result, Refused) and (named := _ENTRY.match(result.field)):
        result.field = f"{named[1]}[{index}]{result.field[named.end() :]}"
    return result


def _add(done: Redriven, topics: dict[str, int], failures: list[Failure]) -> None:
    """Adds a piece to the sums."""
    for topic, redriven in topics.items():
        done.topics[topic] = done.topics.get(topic, 0) + redriven
    done.failures.extend(failures[: max(0, FAILURES_MAX - len(done.failures))])


def _no_dead_letter(message_id: str, group: str) -> Refused:
    what = f"group {group!r} has no dead letter" if group else "there is no given-up message"
    return Refused(
        "MESSAGE_NOT_FOUND",
        f"{what} with the id {message_id!r}",
        field="message_ids",
        action=f"ask why: popmq why {shlex.quote(message_id)}",
    )


#: Handlers of the commands that this class answers.
BY_PIECES = (
    ChangeInvisibleTime.awaited_by(InPieces.change)
    | SendBack.awaited_by(InPieces.send_back)
    | Settle.awaited_by(InPieces.settle)
    | ResumeMessageGroup.awaited_by(InPieces.resume)
    | RenewSession.awaited_by(InPieces.renew)
    | ReleaseSession.awaited_by(InPieces.release)
    | UpdateOffsets.awaited_by(InPieces.update_offsets)
    | QueryOffsets.awaited_by(InPieces.query_offsets)
    | SetConsumeMode.awaited_by(InPieces.set_consume_mode)
    | ResetOffsets.awaited_by(InPieces.move)
    | CloneOffsets.awaited_by(InPieces.move)
    | PurgeTopic.awaited_by(InPieces.purge)
    | Redrive.awaited_by(InPieces.redrive)
    | Discard.awaited_by(InPieces.discard)
    | Peek.awaited_by(InPieces.peek)
    | LookUp.awaited_by(InPieces.look_up)
    | Search.awaited_by(InPieces.search)
    | DeadLetterReasons.awaited_by(InPieces.dead_letter_reasons)
    | Why.awaited_by(InPieces.why)
)
