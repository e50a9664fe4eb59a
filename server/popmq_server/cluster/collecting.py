"""What calls ask for in one turn of the event loop, carried out together: 64 callers cost a broker one request.

    ask ─▶ the items of this turn ─▶ at its end `plan`: shares of them, a request each ─▶ an outcome for each caller

A share is carried out without the deadline of the call that began it: each caller waits until its own. `unclaimed` gets
an outcome whose caller has gone meanwhile.
"""

import asyncio
import contextvars
import itertools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from popmq_remoting.connection.deadlines import Deadlines
from popmq_remoting.errors import DeadlineOver
from popmq_server.errors import Refused

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Share(NamedTuple, Generic[Outcome]):
    """Items that one request carries out. `members`: their places in the turn. `work`: an outcome for each, in order.

    It raises Refused if all of them are refused.
    """

    members: Sequence[int]
    work: Coroutine[object, object, Sequence[Outcome]]


class Collector(Generic[Item, Outcome]):
    """Collects items until the end of each turn."""

    def __init__(
        self,
        plan: Callable[[Sequence[Item]], Iterable[Share[Outcome]]],
        unclaimed: Callable[[Item, Outcome], None] | None = None,
    ) -> None:
        self._plan, self._unclaimed = plan, unclaimed
        self._loop = asyncio.get_running_loop()
        self._items: list[Item] = []
        self._waiting: list[asyncio.Future[Outcome]] = []
        self._numbers = itertools.count()
        self._late: dict[int, asyncio.Future[Outcome]] = {}
        self._deadlines = Deadlines(self._loop, self._end_late)
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask(self, item: Item, until_s: float) -> Outcome:
        """What came of the item. Raises Refused, and DeadlineOver at `until_s` of the event loop's clock."""
        if not self._items:
            self._loop.call_soon(self._end_turn)
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._items.append(item)
        self._waiting.append(future)
        number = next(self._numbers)
        self._late[number] = future
        moment_s = self._deadlines.add(number, self._loop.time(), until_s)
        try:
            return await future
        finally:
            del self._late[number]
            self._deadlines.remove(number, moment_s)

    def _end_late(self, number: int) -> None:
        future = self._late[number]
        if not future.done():
            future.set_exception(DeadlineOver("no answer before the deadline", maybe_done=True))

    def _end_turn(self) -> None:
        items, waiting = self._items, self._waiting
        self._items, self._waiting = [], []
        unplanned = {*range(len(items))}
        try:
            for share in self._plan(items):
                self._begin(share, [(items[member], waiting[member]) for member in share.members])
                unplanned.difference_update(share.members)
        except Exception as error:
            for member in unplanned:
                _fail(waiting[member], error)

    def _begin(self, share: Share[Outcome], asked: Sequence[tuple[Item, asyncio.Future[Outcome]]]) -> None:
        task = self._loop.create_task(self._tell(share, asked), context=contextvars.Context())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _tell(self, share: Share[Outcome], asked: Sequence[tuple[Item, asyncio.Future[Outcome]]]) -> None:
        try:
            outcomes = await share.work
        except Exception as error:
            for _, future in asked:
                _fail(future, error)
            return
        for (item, future), outcome in zip(asked, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)
            elif self._unclaimed is not None:
                self._unclaimed(item, outcome)

    async def close(self, timeout_s: float) -> None:
        """Waits for the requests that are under way."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=timeout_s)


def _fail(future: asyncio.Future[Outcome], error: Exception) -> None:
    if not future.done():
        future.set_exception(again(error) if isinstance(error, Refused) else error)


def again(refused: Refused) -> Refused:
    """A copy of a refusal for another caller: an exception has one traceback."""
    copy = Refused(
        refused.code,
        refused.message,
        field=refused.field,
        action=refused.action,
        retry_after_ms=refused.retry_after_ms,
    )
    copy.__cause__ = refused.__cause__  # the broker's answer
    return copy


def packed(places: Sequence[int], size_of: Callable[[int], int], most: int) -> Iterator[list[int]]:
    """Places in their order, in groups that are together no larger than `most`; one that is larger stands alone."""
    members, room = list[int](), most
    for place in places:
        size = size_of(place)
        if members and size > room:
            yield members
            members, room = [], most
        members.append(place)
        room -= size
    if members:
        yield members
