"""An order to redrive dead letters, at a broker that is away for a while or refuses."""

from types import SimpleNamespace as Values
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq_console import redrives
from popmq_console.redrives import PIECE, Redrive


class Client:
    """A broker with dead letters. `refusals`: what the next calls of redrive raise, None for one that succeeds."""

    def __init__(self, count: int, *refusals: errors.PopMQError | None) -> None:
        self.left = set(range(count))
        self._end = count
        self._refusals = list(refusals)
        self.messages = self.dead_letters = self

    async def browse(self, _: str, queue: int, offset: int, most: int) -> Any:
        found = [Values(offset=one, dead_letter=None) for one in sorted(self.left) if one >= offset][:most]
        following = found[-1].offset + 1 if found else self._end
        return Values(deliveries=found, min_offset=0, max_offset=self._end, next_offset=following)

    async def redrive(self, _: str, offsets: list[int]) -> Any:
        if refusal := self._refusals.pop(0) if self._refusals else None:
            raise refusal
        self.left -= set(offsets)
        return popmq.Redriven(len(offsets), ())


async def ordered(client: Client) -> Redrive:
    order = Redrive(client, "packing", "", "")  # type: ignore[arg-type]
    order.start()
    await order.wait()
    return order


async def test_an_order_goes_on_where_it_was_when_the_broker_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrives, "AGAIN_S", 0)
    client = Client(2 * PIECE + 1, None, errors.Unavailable("no broker"), errors.StorageFull("no room"))
    order = await ordered(client)
    assert (order.redriven, order.looked_at, order.complete) == (2 * PIECE + 1, 2 * PIECE + 1, True)
    assert (client.left, order.error, order.trouble) == (set(), "", "")


async def test_an_order_that_is_refused_is_not_complete() -> None:
    order = await ordered(Client(2 * PIECE, None, errors.PermissionDenied("not with this key")))
    assert (order.redriven, order.looked_at, order.complete) == (PIECE, PIECE, False)
    assert "not with this key" in order.error
