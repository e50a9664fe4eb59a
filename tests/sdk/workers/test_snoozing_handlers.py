"""The example of handlers that snooze, and of messages that expire."""

import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from popmq.testing import Broker, FakeClock

EXAMPLE = Path(__file__).parents[3] / "examples" / "snooze.py"


def at(hour: int) -> Any:
    """A clock for the example."""

    class Then(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]  # of another class
            return datetime(2026, 1, 2, hour, tzinfo=UTC)

    return Then


def test_a_transfer_waits_for_the_bank_and_an_offer_does_not_wait(
    popmq_broker: Broker, popmq_clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(EXAMPLE))
    worker, client = example["worker"], popmq_broker.client()
    popmq_broker.declare(worker)
    client.groups.update("bank", max_attempts=1)
    client.topics.delete("offers")
    example["send"](client)
    bank = worker.handlers[0].function
    popmq_clock.advance(60_000)  # the offer was not read in this time
    bank.__globals__["datetime"] = at(20)
    for _ in range(3):
        assert [each.outcome for each in popmq_broker.work(worker)] == ["released"]
        popmq_clock.advance(600_000)
    bank.__globals__["datetime"] = at(9)
    assert [each.outcome for each in popmq_broker.work(worker)] == ["acked"]
    assert capsys.readouterr().out == "transferred 100 EUR\n"
    assert client.broker.stats("offers", "shop").groups[0].expired == 1
