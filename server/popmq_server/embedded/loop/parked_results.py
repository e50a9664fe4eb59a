"""GetResults: looks for results, and waits for those that are not there yet.

    GetResults ─▶ entered under its ids ─▶ looks, piece by piece ─▶ enough, full, or the wait ended ─▶ answer
                                             ▲   │ not enough
                                             │   ▼
                     the ids that came ──────┴─ parked ◀── a commit stored results of some of its ids

A call is entered before its first look. So a result that is stored after that look is noted with the call, and no wake
is lost. A woken call looks only for the ids that came. An id that nobody knows is waited for like any other: its
message may not be sent yet.
"""

from collections.abc import Iterable
from dataclasses import replace

from popmq_server.clock import Clock
from popmq_server.contract.commands import GetResults, ResultsFound
from popmq_server.embedded.loop.in_pieces import InPieces
from popmq_server.embedded.loop.long_poll import Waiters
from popmq_server.embedded.operations import ResultsPiece
from popmq_server.errors import Refused

#: Message ids that all calls may wait for: some 300 bytes each.
IDS_MAX = 250_000


class _Call:
    """A call that waits. `came`: ids whose results were stored since its last look."""

    __slots__ = ("came", "key")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.came: set[str] = set()


class ParkedResults:
    """`engine` runs the pieces of a GetResults. For one event loop."""

    def __init__(self, clock: Clock, engine: InPieces) -> None:
        self._clock = clock
        self._engine = engine
        #: Each call is parked under a key of its own.
        self.waiters = Waiters(clock, wake_all=False, what="calls of GetResults of group")
        self._numbers = 0
        #: (group, message id) → the calls that wait for its result.
        self._calls: dict[tuple[str, str], list[_Call]] = {}
        self._ids = 0

    async def get(self, asked: GetResults) -> ResultsFound:
        """The results, once there are enough, or when the wait ends."""
        if not asked.wait_ms:
            return await self._look(asked)
        call = self._enter(asked)
        deadline_ms = self._clock.now_ms() + asked.wait_ms
        try:
            return await self._wait(asked, call, deadline_ms)
        finally:
            self._leave(asked, call)

    async def _wait(self, asked: GetResults, call: _Call, deadline_ms: int) -> ResultsFound:
        rows = dict[str, tuple[bytes, int, str]]()
        wanted, room = asked, asked.bytes_max
        while True:
            found = await self._look(wanted)
            rows |= {row[2]: row for row in found.rows}  # a newer result of an id takes the place of the older one
            room -= sum(len(row[0]) for row in found.rows)
            if found.full or room <= 0:
                return ResultsFound([*rows.values()], True)
            if len(rows) >= asked.results_min:
                return ResultsFound([*rows.values()], False)
            if not call.came and not await self.waiters.park(call.key, self.waiters.generation(call.key), deadline_ms):
                return ResultsFound([*rows.values()], False)
            came, call.came = call.came, set()
            wanted = replace(asked, message_ids=tuple(came), bytes_max=room)

    async def _look(self, asked: GetResults) -> ResultsFound:
        """What is there now of these ids."""
        rows, ids, room = list[tuple[bytes, int, str]](), asked.message_ids, asked.bytes_max
        while ids:
            some = await self._engine.run(ResultsPiece(asked.group, ids, room))
            rows += some.rows
            room -= sum(len(row[0]) for row in some.rows)
            ids = ids[some.done :]
            if some.full or (ids and room <= 0):
                return ResultsFound(rows, True)
        return ResultsFound(rows, False)

    def _enter(self, asked: GetResults) -> _Call:
        """Notes a call under its ids. Raises Refused POLLING_FULL."""
        if self._ids + len(asked.message_ids) > IDS_MAX:
            raise Refused(
                "POLLING_FULL",
                f"{self._ids:,} results are waited for already",
                retry_after_ms=1000,
                action="wait for fewer message ids at once",
            )
        self._numbers += 1
        self._ids += len(asked.message_ids)
        call = _Call((asked.group, f"call {self._numbers}"))
        for each in asked.message_ids:
            self._calls.setdefault((asked.group, each), []).append(call)
        return call

    def _leave(self, asked: GetResults, call: _Call) -> None:
        self._ids -= len(asked.message_ids)
        for each in asked.message_ids:
            calls = self._calls[(asked.group, each)]
            calls.remove(call)
            if not calls:
                del self._calls[(asked.group, each)]

    def wake(self, stored: Iterable[tuple[str, str]]) -> None:
        """After a commit: (group, message id) of the results that it stored."""
        if not self._calls:
            return
        for group, message_id in stored:
            for call in self._calls.get((group, message_id), ()):
                call.came.add(message_id)
                self.waiters.hand_on(call.key)
