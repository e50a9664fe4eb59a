"""Long reads beside the writer: searches run in pieces, in another thread, on read transactions of their own.

    event loop ──▶ piece in a thread: a millisecond or two ──▶ as long a pause ──▶ the next piece …

One piece of all calls runs at a time, and pauses leave at least half of a processor to others: Python runs one thread
at a time. The answer of a call ends after PIECES_MAX pieces; the caller goes on with its token.
"""

import asyncio
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from popmq_server.clock import pause, stopwatch
from popmq_server.contract.commands import (
    ReadRow,
    Search,
    Searched,
    bytes_of,
    queries,
)
from popmq_server.contract.commands.inspection import DeadLetterReasons, ReasonNumbers, ReasonsFound
from popmq_server.contract.engine import Commands
from popmq_server.embedded.operations import Fold
from popmq_server.embedded.rules.inspect import dead_reasons, search
from popmq_server.embedded.rules.inspect.search import END, Scope
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.store import Store, reading
from popmq_server.errors import (
    Refused,
    invalid,
    not_a_page,
    topic_not_found,
    unavailable,
)
from popmq_server.values.message import GIVE_UP_TOPIC, RETRY_PREFIX, dead_letter_topic
from popmq_server.values.records import Topic

P = ParamSpec("P")
T = TypeVar("T")

#: Pieces of one call: of messages of 1 KiB some 100,000, in less than a second.
PIECES_MAX = 100
#: Calls at a time; further ones wait. Each may hold the messages of a page.
CALLS_MAX = 4
#: Reasons of one answer, at most; of a piece a few more.
REASONS_MAX = 1000


class Aside:
    """Long reads of one store. For one event loop. `engine` answers its queries."""

    def __init__(self, store: Store, engine: Commands) -> None:
        self._store = store
        self._engine = engine
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._turn = asyncio.Lock()
        self._closed = False

    async def search(self, asked: Search) -> Searched:
        """One page of a search."""
        scope = await self._scope(asked)
        await self.fold()
        rows, looked_at, at = list[ReadRow](), 0, _position(asked.at, scope)
        async with self._calls:
            for _ in range(PIECES_MAX):
                left, room = asked.messages_max - len(rows), asked.bytes_max - bytes_of(rows)
                found = await self._run(_piece, scope, at, left, room, bool(rows))
                rows, looked_at, at = rows + found.rows, looked_at + found.looked_at, found.at
                if found.full or at == END:
                    break
        return Searched(rows, looked_at, "" if at == END else f"{_order(scope)}.{at}")

    async def reasons(self, asked: DeadLetterReasons) -> ReasonsFound:
        """The reasons of the dead letters of a stretch of offsets; it ends early when there are many of them."""
        name = dead_letter_topic(asked.group) if asked.group else GIVE_UP_TOPIC
        if asked.group:
            await self._engine.ask(queries.GroupSettings(name=asked.group))  # refuses a group that does not exist
        try:
            (numbers,) = await self._engine.ask(queries.Topics(name=name))
        except Refused:
            raise topic_not_found(name, "group") from None  # the request names no topic
        await self.fold()
        _, least, stop = numbers.queues[0]
        topic_id, sums, looked_at, at = numbers.topic.topic_id, dict[str, ReasonNumbers](), 0, least
        if asked.at:
            if not (asked.at.isascii() and asked.at.isdecimal() and len(asked.at) < 19):
                raise not_a_page(asked.at)
            at = max(at, int(asked.at))
        async with self._calls:
            for _ in range(PIECES_MAX):
                if at >= stop or len(sums) >= REASONS_MAX:
                    break
                found = await self._run(dead_reasons.count, topic_id, at, stop, asked.topic, sums)
                looked_at, at = looked_at + found.looked_at, found.at
        return ReasonsFound(list(sums.values()), looked_at, str(at) if at < stop else "")

    async def fold(self) -> None:
        """Asks the writer for a fold, after which a read transaction sees all that was answered."""
        if self._store.folding is not None:
            await self._engine.execute(Fold())

    async def _scope(self, asked: Search) -> Scope:
        """Where a search looks. Refuses a retry topic, whose entries are in no queue."""
        if asked.topic.startswith(RETRY_PREFIX):
            raise invalid(
                f"the messages of {asked.topic!r} are browsed by the number of their entries, oldest entry first",
                field="order",
                action="leave order, search, from_ms and until_ms out",
            )
        (numbers,) = await self._engine.ask(queries.Topics(name=asked.topic))
        topic: Topic = numbers.topic
        times = asked.from_ms, asked.until_ms
        return Scope(topic.topic_id, topic.type == "LITE", asked.text.encode(), asked.newest, *times)

    async def close(self) -> None:
        """Ends all calls: waits for the piece that runs, and refuses the next ones. Call it before the store closes."""
        self._closed = True
        async with self._turn:
            pass

    async def _run(self, read: Callable[Concatenate[Transaction, P], T], *given: P.args, **named: P.kwargs) -> T:
        """Runs one piece in another thread, then pauses as long as it took. Raises Refused when the broker stops."""

        def run() -> T:
            with self._store.still, reading(self._store) as kv:
                return read(kv, *given, **named)

        async with self._turn:
            if self._closed:
                raise unavailable("the broker is stopping")
            began = stopwatch()
            found = await asyncio.to_thread(run)
            await pause(stopwatch() - began)
        return found


def _piece(
    kv: Transaction, scope: Scope, at: int | None, messages_max: int, bytes_max: int, some: bool
) -> search.FoundPiece:
    return search.SearchPiece(kv, scope, messages_max, bytes_max, some).run(
        search.begin(kv, scope) if at is None else at
    )


def _position(token: str, scope: Scope) -> int | None:
    """The position in a page token; None without one. Refuses the token of another topic, or of the other order."""
    if not token:
        return None
    begin, _, at = token.rpartition(".")
    if begin != _order(scope) or not (at.isascii() and at.isdecimal() and len(at) < 19):
        raise not_a_page(token)
    return int(at)


def _order(scope: Scope) -> str:
    return f"{'newest' if scope.newest else 'oldest'}.{scope.topic_id}"
