"""Gathers the sends of many callers into few requests. Who decides is popmq._gathering; here is who waits and calls."""

import copy
import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

from popmq import _send_calls
from popmq._async.concurrency import Event, Lock, shielded
from popmq._async.wire import Wire
from popmq._gathering import GATHER_S_MAX, Line, Unit
from popmq.errors import DeadlineExceeded, PopMQError
from popmq_proto.v1 import popmq_pb2 as pb


class Gather:
    """The sends of one client: one Line for each topic that it ever sent to."""

    def __init__(self, wire: Wire, numbering: _send_calls.Numbering) -> None:
        self.sent = 0
        self.requests = 0
        self._wire = wire
        self._numbering = numbering
        self._lock = Lock()
        self._lines: dict[str, Line] = {}

    async def send(self, topic: str, rows: Sequence[pb.Message], size: int) -> list[Any]:
        """Sends rows of `size` bytes, perhaps together with others. A SendReceipt or the error of each, in order."""
        unit = Unit(rows, size, Event(), frozenset([row.message_group or row.lite_topic for row in rows]) - {""})
        with self._lock:
            line = self._lines.setdefault(topic, Line())
            line.add(unit)
        try:
            await self._until_settled(topic, line, unit)
        finally:
            with self._lock:
                line.leave(unit)  # of a caller that was cancelled
        if unit.error is not None:
            raise unit.error
        return unit.results

    def waiting(self) -> int:
        """Callers that wait to fly."""
        with self._lock:
            return sum(line.waiting for line in self._lines.values())

    async def _until_settled(self, topic: str, line: Line, unit: Unit) -> None:
        deadline = time.monotonic() + self._wire.timeouts.send
        patient = True
        while not unit.settled:
            with self._lock:
                units = line.board(patient)
            if units:
                await shielded(self._fly, topic, line, units)
            elif time.monotonic() >= deadline and self._take_back(line, unit):
                raise DeadlineExceeded(
                    "earlier sends of this client take too long; this one was not sent", retryable=True
                )
            else:
                limit = GATHER_S_MAX if unit.keeps_time and patient else deadline - time.monotonic()
                patient = await unit.turn.wait(max(limit, GATHER_S_MAX)) or not unit.keeps_time
                unit.turn.clear()

    async def _fly(self, topic: str, line: Line, units: list[Unit]) -> None:
        """One request for all `units`; settles each of them, whatever happens."""
        try:
            # The number is drawn once: every try of this call is the same request to the broker.
            number = self._numbering.request_number()
            rows = chain.from_iterable(unit.rows for unit in units)
            results = await self._wire.run(_send_calls.send(topic, rows, self._numbering.producer_id, number))
        except Exception as error:
            self._land(line, units, [], error)
        except BaseException:
            # This thread is told to end; the others of the flight are not.
            self._land(line, units, [], PopMQError("the sending thread was interrupted: whether it sent is not known"))
            raise
        else:
            self._land(line, units, results, None)

    def _land(self, line: Line, units: list[Unit], results: list[Any], error: Exception | None) -> None:
        with self._lock:
            line.landed(units)
            self.requests += error is None
            self.sent += len(results)
        start = 0
        for unit in units:
            unit.settle(results[start : start + len(unit.rows)], copy.copy(error))
            start += len(unit.rows)

    def _take_back(self, line: Line, unit: Unit) -> bool:
        with self._lock:
            return line.leave(unit)
