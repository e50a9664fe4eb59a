"""The calls that the embedded engine runs as pieces of some milliseconds, with other commands in between.

    Peek, LookUp, Why, Redrive …  a piece says where the next one continues       commands/pieces.py
    Search, reasons               beside the writer                               aside.py
    SetConsumeMode, offsets       then Sweep, until nothing of before is left     delivery/sweep.py
    REPEATED                      what one commit left is repeated

Each piece is one command. After a crash between two of them the rest is still there: the caller repeats the call.
"""

import asyncio
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from popmq_server.contract.commands import (
    ChangeInvisibleTime,
    CloneOffsets,
    DiscardPiece,
    Failure,
    FindDeadLetters,
    HolderSearch,
    LookedUp,
    LookUp,
    LookUpPiece,
    OffsetsOfQueue,
    Peek,
    PeekPiece,
    PurgeTopic,
    QueryOffsets,
    ReadRow,
    Redrive,
    Redriven,
    RedrivenPiece,
    RedrivePiece,
    ReleaseSession,
    RenewSession,
    Reset,
    ResetOffsets,
    ResumeMessageGroup,
    Search,
    Searched,
    SendBack,
    SetConsumeMode,
    Spotted,
    Sweep,
    Trace,
    UpdateOffsets,
    Why,
    WhyPiece,
    bytes_of,
)
from popmq_server.contract.commands.inspection import DeadLetterReasons, MessageLife, ReasonsFound
from popmq_server.contract.commands.numbers import LeaseNumbers, Page, Rows
from popmq_server.contract.commands.queries import (
    A,
    Browse,
    Delayed,
    Leases,
    Listing,
    Query,
    Transactions,
)
from popmq_server.embedded.loop.aside import Aside
from popmq_server.embedded.loop.parked_pulls import PIECE_BYTES, PIECE_MESSAGES
from popmq_server.embedded.store.store import Store
from popmq_server.errors import Later, Refused
from popmq_server.values.message import RECORD_HEAD_BYTES, RETRY_PREFIX
from popmq_server.values.records import Subscription

Run = Callable[[Any], Awaitable[Any]]

_ENTRY = re.compile(r"(\w+)\[\d+\]")

#: Commands that one commit may not finish.
REPEATED = frozenset(
    {
        ChangeInvisibleTime,
        SendBack,
        ResumeMessageGroup,
        UpdateOffsets,
        RenewSession,
        ReleaseSession,
        PurgeTopic,
        QueryOffsets,
    }
)
#: Places of one id that a Why examines. Its first piece and its last one read each of them, some 20 µs for 1 KB: ids
#: should be unique, and it reports the newest 100 messages only.
SPOTS_MAX = 200
#: Failures that the answer to a Redrive names.
FAILURES_MAX = 4096


class InPieces(ABC):
    """A base class of the embedded engine, which runs one command."""

    def __init__(self, store: Store) -> None:
        self._aside = Aside(store, self.execute)
        #: Changes and send-backs of more than one commit; they go on when their callers leave.
        self._carried_on: set[asyncio.Task[list[Any]]] = set()

    @abstractmethod
    async def execute(self, command: Any) -> Any:
        """The answer of a command, whole."""

    @abstractmethod
    async def run_piece(self, command: Any) -> Any:
        """Runs a further piece of a call. It is never refused with BUSY: that would leave the call half done."""

    async def ask(self, query: Query[A]) -> A:
        """Answers one query, among the commands; joins the pieces of a list."""
        answer: A = await answered(self.execute, query)
        return answer

    async def search(self, asked: Search) -> Searched:
        """Messages of all queues in the order of their storing, or those with a text; the writer goes on."""
        return await self._aside.search(asked)

    async def dead_letter_reasons(self, asked: DeadLetterReasons) -> ReasonsFound:
        """The reasons of a group's dead letters, with their numbers; the writer goes on."""
        return await self._aside.reasons(asked)

    async def finished(self, command: Any, first: Any) -> Any:
        """The whole answer of a command of REPEATED, whose first commit answered with `first`."""
        if isinstance(command, ChangeInvisibleTime | SendBack):
            return await asyncio.shield(self.carry_on(command, first)) if any_later(first) else first
        if isinstance(command, QueryOffsets):
            return await self._of_all_groups(command, first)
        if isinstance(command, ResumeMessageGroup):
            while first:
                first = await self.run_piece(command)
            return None
        total, left = first
        while left:
            more, left = await self.run_piece(command._replace(after=left) if hasattr(command, "after") else command)
            total += more
        return total

    def carry_on(self, command: ChangeInvisibleTime | SendBack, results: list[Any]) -> "asyncio.Task[list[Any]]":
        """Runs the rest of the entries in a task that no caller cancels: `results` has Later for them.

        There is one such task for a call: two would send a message back twice.
        """
        task = asyncio.create_task(self._all_entries(command, results))
        self._carried_on.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[list[Any]]") -> None:
        """Takes the exception, which has no reader if the caller has left: the broker stops."""
        self._carried_on.discard(task)
        task.cancelled() or task.exception()

    async def _all_entries(self, command: ChangeInvisibleTime | SendBack, results: list[Any]) -> list[Any]:
        """Repeats the entries that did not fit into one commit, until each has its answer."""
        while left := [index for index, result in enumerate(results) if isinstance(result, Later)]:
            if isinstance(command, SendBack):
                again: Any = command._replace(messages=tuple(command.messages[index] for index in left))
            else:
                again = command._replace(changes=tuple(command.changes[index] for index in left))
            for index, result in zip(left, await self.run_piece(again), strict=True):
                results[index] = _numbered(result, index)
        return results

    async def _of_all_groups(self, command: QueryOffsets, rows: Rows[OffsetsOfQueue]) -> list[OffsetsOfQueue]:
        """Finds the least committed offsets of the groups that the first piece did not look at."""
        found, after = list(rows), rows.after
        while after:
            more = await self.run_piece(command._replace(since_ms=None, after=after))
            for index, (row, other) in enumerate(zip(found, more, strict=False)):
                known = [offset for offset in (row.least_committed, other.least_committed) if offset >= 0]
                found[index] = row._replace(least_committed=min(known, default=-1))
            after = more.after
        return found

    async def peek(self, asked: Peek) -> list[ReadRow]:
        """The messages that the next Pop would deliver."""
        piece = PeekPiece(*asked)
        while (answer := await self.execute(piece)).begins is not None:
            piece = piece._replace(begins=answer.begins)
        return [row[:5] for row in answer.rows]

    async def look_up(self, asked: LookUp) -> LookedUp:
        """Finds messages by id or key; stops before the end only when the answer is full."""
        piece, rows = LookUpPiece(*asked), list[ReadRow]()
        while True:
            answer = await self.execute(piece)
            rows += answer.rows
            room = piece.bytes_max - bytes_of(answer.rows)
            full = answer.full or (answer.below > 0 and (len(answer.rows) == piece.messages_max or room <= 0))
            if full or not answer.below:
                return LookedUp(rows, full)
            left = piece.messages_max - len(answer.rows)
            piece = piece._replace(below=answer.below, messages_max=left, bytes_max=room)

    async def why(self, asked: Why) -> list[MessageLife]:
        """Finds every place that may hold the message, then reads all its lives in one consistent view."""
        found: list[Spotted] = []
        piece: Trace | None = Trace(*asked)
        while piece is not None and len(found) < SPOTS_MAX:
            answer = await self.execute(piece)
            found += answer.found
            piece = piece._replace(at=answer.at) if answer.at is not None else None
        question = WhyPiece(asked.message_id, tuple(found[:SPOTS_MAX]), asked.topic, asked.group)
        while isinstance(lives := await self.execute(question), HolderSearch):
            question = question._replace(walk=lives)
        return list(lives)

    async def redrive(self, asked: Redrive) -> Redriven:
        """Redrives some dead letters, or all up to the one that was last at the start: later ones stay."""
        return await self._each(asked, RedrivePiece(asked.group, topic=asked.topic, reason=asked.reason))

    async def discard(self, asked: Redrive) -> Redriven:
        """Discards dead letters, chosen as in `redrive`."""
        return await self._each(asked, DiscardPiece(asked.group, topic=asked.topic, reason=asked.reason))

    async def _each(self, asked: Redrive, piece: RedrivePiece | DiscardPiece) -> Redriven:
        """Runs pieces until all dead letters that were asked for are handled."""
        done = Redriven({}, [])
        if not (asked.offsets or asked.message_ids):
            await self._all_letters(piece, done)
            return done
        found = await self._find(asked.group, asked.message_ids)
        unknown = sorted(asked.message_ids - set(found.values()))
        _add(done, {}, [Failure(-1, message_id, _no_dead_letter(message_id, asked.group)) for message_id in unknown])
        offsets = tuple(dict.fromkeys((*asked.offsets, *sorted(found))))
        run = self.execute
        while offsets:
            answer = await self._redriven(piece._replace(offsets=offsets), run)
            run = self.run_piece
            _add(done, answer.topics, answer.failures)
            offsets = offsets[answer.done :]
        return done

    async def _find(self, group: str, message_ids: frozenset[str]) -> dict[int, str]:
        """The dead letters with these ids, by offset."""
        found: dict[int, str] = {}
        piece = FindDeadLetters(group, message_ids)
        while message_ids and piece.below != 0:
            some, below = await self.execute(piece)
            found |= some
            piece = piece._replace(below=below)
        return found

    async def _all_letters(self, piece: RedrivePiece | DiscardPiece, done: Redriven) -> None:
        run = self.execute
        while True:
            answer = await self._redriven(piece, run)
            run = self.run_piece
            _add(done, answer.topics, answer.failures)
            if answer.next >= answer.stop:
                return
            piece = piece._replace(start=answer.next, stop=answer.stop)

    async def _redriven(self, piece: RedrivePiece | DiscardPiece, run: Run) -> RedrivenPiece:
        """The answer of one piece, once it is known what is leased. `run`: only the first piece may be refused."""
        answer: RedrivenPiece = await run(piece)
        while answer.walk is not None and isinstance(piece, RedrivePiece):
            answer = await self.run_piece(piece._replace(walk=answer.walk))
        return answer

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """Switches the consume mode; returns when what was leased or waiting is moved for it."""
        changed: Subscription
        changed, left = await self.execute(command)
        await self._sweep(command.topic, command.group, left)
        return changed

    async def move(self, command: ResetOffsets | CloneOffsets) -> dict[int, int]:
        """Resets or clones offsets; returns the next offsets once everything that the group held before is removed."""
        reset: Reset = await self.execute(command)
        await self._sweep(command.topic, command.group, reset.left)
        return reset.offsets

    async def _sweep(self, topic: str, group: str, left: bool) -> None:
        while left:
            left = await self.run_piece(Sweep(topic, group))


def any_later(results: Any) -> bool:
    """Whether some entries of an answer did not fit into its commit."""
    return isinstance(results, list) and any(isinstance(result, Later) for result in results)


def _numbered(result: Any, index: int) -> Any:
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


Execute = Callable[[Any], Awaitable[Any]]


async def answered(execute: Execute, query: Query[Any]) -> Any:
    """The answer of any query, whose rows may come in pieces:

    Listing                 joined     up to its `rows_max` rows
    Delayed, Transactions   counted    up to `count` rows, and the total number, which the first piece has
    Browse                  browsed    up to its `messages_max` messages and `bytes_max` bytes
    Leases                  leases     a page of rows; the total number takes a walk over all leases
    """
    if isinstance(query, Listing):
        return await _joined(execute, query)
    if isinstance(query, Delayed | Transactions):
        return await _counted(execute, query)
    if isinstance(query, Browse) and not query.topic.startswith(RETRY_PREFIX):
        return await _browsed(execute, query)
    return await (_leases(execute, query) if isinstance(query, Leases) else execute(query))


async def _joined(execute: Execute, query: Listing[Any]) -> Any:
    answer = await execute(query)
    while answer.after and not 0 < query.rows_max <= len(answer):
        left = query.rows_max - len(answer) if query.rows_max else 0
        more = await execute(replace(query, after=answer.after, rows_max=left))
        answer += more
        answer.after = more.after
    return answer


async def _counted(execute: Execute, query: Delayed | Transactions) -> Any:
    rows, total = await execute(query)
    while rows.after and len(rows) < query.count:
        more, _ = await execute(replace(query, count=query.count - len(rows), after=rows.after))
        rows += more
        rows.after = more.after
    return rows, total


async def _browsed(execute: Execute, query: Browse) -> Page:
    whole = page = cast(Page, await execute(_piece(query, query.offset, query.messages_max, query.bytes_max)))
    while page.full and page.rows:
        left = query.messages_max - len(whole.rows)
        bytes_left = query.bytes_max - bytes_of(whole.rows) - RECORD_HEAD_BYTES * len(whole.rows)
        if left <= 0 or bytes_left <= 0:
            break
        page = await execute(_piece(query, page.next_offset, left, bytes_left, rest_bytes=bytes_left))
        whole = page._replace(rows=[*whole.rows, *page.rows])
    return whole


def _piece(query: Browse, offset: int, messages: int, size: int, rest_bytes: int = 0) -> Browse:
    """What one command reads: see parked_pulls.py."""
    return replace(
        query,
        offset=offset,
        messages_max=min(messages, PIECE_MESSAGES),
        bytes_max=min(size, PIECE_BYTES),
        rest_bytes=rest_bytes,
    )


async def _leases(execute: Execute, query: Leases) -> tuple[list[LeaseNumbers], int, str]:
    """A page after the first one ends the walk when it is full: it has no total."""
    rows, total, after, page = list[LeaseNumbers](), 0, query.after, ""
    while True:
        left = query.leases_max - len(rows)
        more, met, after = await execute(replace(query, leases_max=left, after=after))
        rows, total = rows + more, total + met
        if after and not page and len(rows) == query.leases_max:
            page = after
        if not after or (page and query.after):
            return rows, 0 if query.after else total, page
