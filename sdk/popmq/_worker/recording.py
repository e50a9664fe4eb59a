"""A worker in a test: it runs until nothing is due, and what it handled is recorded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from popmq._async.client import AsyncClient
from popmq._worker.converting import BadPayload
from popmq._worker.outcomes import Reject
from popmq._worker.running import Run
from popmq.message import Delivery
from popmq.worker import Middleware, Worker

Outcome = Literal["acked", "released", "rejected", "settled"]


@dataclass(frozen=True, slots=True)
class Handled:
    """One delivery that a worker handled. `result` is what the handler returned, `error` what it raised.

    `outcome` "settled": the handler did so itself, by `delivery.ack()`, `release()` or `reject()`.
    """

    delivery: Delivery
    outcome: Outcome
    result: Any = None
    error: Exception | None = None


class Recorder(Middleware):
    """Outermost, so that it sees how each delivery ended."""

    def __init__(self, is_leased: Callable[[str], bool]) -> None:
        self.handled: list[Handled] = []
        self._is_leased = is_leased

    def after(self, delivery: Delivery, result: Any) -> None:
        outcome: Outcome = "acked" if self._is_leased(delivery.handle) else "settled"
        self.handled.append(Handled(delivery, outcome, result))

    def failed(self, delivery: Delivery, error: Exception) -> None:
        rejected = isinstance(error, Reject | BadPayload)
        self.handled.append(Handled(delivery, "rejected" if rejected else "released", error=error))


async def work_until_idle(worker: Worker, client: AsyncClient) -> list[Handled]:
    """Passes over all handlers until one pass handles nothing: a handler may send what another one handles."""
    recorder = Recorder(client._parts.leases.holds)
    async with client, worker.ready():
        seen = -1
        while seen < len(recorder.handled):
            seen = len(recorder.handled)
            await Run(client, worker.handlers, [recorder, *worker.middleware], until_idle=0.0).work()
    return recorder.handled
