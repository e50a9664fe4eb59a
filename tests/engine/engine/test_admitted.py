"""What waits for the writer is bounded, whatever it is: a stalled disk costs memory up to a bound, then BUSY."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.loop.broker import EmbeddedEngine, Ticket
from popmq_server.embedded.writer import admitted
from popmq_server.embedded.writer.admitted import (
    COMMAND_BYTES,
    ENTRY_BYTES,
    Admitted,
    bytes_of,
)
from popmq_server.embedded.writer.core import HANDLERS, Core
from popmq_server.errors import Refused, invalid
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from popmq_server.values.limits import KEEP_MS_MAX
from tests.engine.event_loop import LOST_S, turns
from tests.engine.rig import refusal, sending
from tests.engine.traffic.traffic import group

NO = invalid("no", action="none")


class Stalled:
    """A broker whose writer waits before its next commit, as for a disk."""

    def __init__(self, broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self._goes_on = threading.Event()
        run = Core.run

        def held(core: Core, commands: list[Any]) -> Any:
            assert self._goes_on.wait(LOST_S)
            return run(core, commands)

        monkeypatch.setattr(Core, "run", held)

    async def waits(self, command: Any) -> asyncio.Task[Any]:
        """A call that waits now, or was refused at once."""
        call = asyncio.ensure_future(self.broker.execute(command))
        await turns()
        return call

    async def go_on(self, *calls: asyncio.Task[Any]) -> list[Any]:
        self._goes_on.set()
        async with asyncio.timeout(LOST_S):
            return await asyncio.gather(*calls, return_exceptions=True)


@pytest.fixture
async def stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stalled]:
    options = Options(tmp_path / "data", max_size=1 << 28, sync="none", journal="off")  # else a lone command would run
    broker = EmbeddedEngine(options, FakeClock(), Metrics())
    await broker.execute(ask.CreateTopic("t", 1, False, KEEP_MS_MAX))
    await broker.execute(group("g", 3))
    stalled = Stalled(broker, monkeypatch)
    yield stalled
    await stalled.go_on()
    await broker.close()


async def test_acks_are_taken_while_sends_fill_their_part_of_the_queue(
    stalled: Stalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admitted, "ADMITTED_COMMANDS_MAX", 2)
    calls = [await stalled.waits(sending("a")) for _ in range(4)]
    assert [call.done() for call in calls] == [False, False, True, True]
    acks = [await stalled.waits(ask.Ack("g", ())) for _ in range(3)]
    assert [call.done() for call in acks] == [False, False, True]
    pops = [await stalled.waits(ask.Pop("t", "g")) for _ in range(3)]
    results = await stalled.go_on(*calls, *acks, *pops)
    assert [refusal(result) for result in results] == ["", "", "BUSY", "BUSY", "", "", "BUSY", "", "", "BUSY"]


async def test_a_queue_that_was_full_takes_commands_again_when_it_was_answered(
    stalled: Stalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ask.Ack("g", ("no handle",) * 4096)
    monkeypatch.setattr(admitted, "ADMITTED_BYTES_MAX", 2 * bytes_of(command))
    calls = [await stalled.waits(command) for _ in range(3)]
    assert [refusal(result) for result in await stalled.go_on(*calls)] == ["", "", "BUSY"]
    again = await asyncio.gather(*(stalled.broker.execute(command) for _ in range(2)))
    assert [len(acked.results) for acked in again] == [4096] * 2


async def test_a_call_that_was_cancelled_is_counted_out_when_the_writer_has_answered(
    stalled: Stalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admitted, "ADMITTED_COMMANDS_MAX", 1)
    (await stalled.waits(ask.Ack("g", ()))).cancel()
    assert refusal((await stalled.go_on(await stalled.waits(ask.Ack("g", ()))))[0]) == "BUSY"
    async with asyncio.timeout(LOST_S):
        while stalled.broker._admitted._commands[ask.LANE_ACK]:
            await turns()
    assert (await stalled.broker.execute(ask.Ack("g", ()))).results == []


async def test_the_rest_of_a_call_that_was_admitted_is_counted_and_never_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admitted, "ADMITTED_COMMANDS_MAX", 1)
    counts, sweep = Admitted(), operations.Sweep("t", "g")
    sizes = [counts.admit(sweep), counts.enter(sweep)]
    with pytest.raises(Refused):
        counts.admit(sweep)
    counts.leave([Ticket(asyncio.get_running_loop().create_future(), size, sweep) for size in sizes])
    assert counts.admit(sweep) == COMMAND_BYTES


@pytest.mark.parametrize(
    ("command", "entries", "more"),
    [
        (ask.Ack("g", ("",) * 9), 9, 0),
        (ask.ChangeInvisibleTime("g", (ask.Change("h", "reject", reason="why"), NO)), 2, 3),
        (ask.Settle("g", ("",), (ask.Change("h", "reject", reason="why"),)), 2, 3),
        (ask.SendBack("t", "g", (ask.SentBack(0, 1, reason="why"), NO)), 2, 3),
        (ask.Send("t", (NO,) * 3, bytes=70), 3, 70),
        (ask.Stage("s", 1, "i", 0, "t", (NO,) * 3, bytes=70), 3, 70),
        (ask.EndTransaction((ask.End("a", True),)), 1, 0),
        (ask.CommitBatch("s", 1, (ask.StageName("a", "t"),)), 1, 0),
        (ask.SyncLite("t", "g", "c", "ADD", ("a", "b")), 2, 0),
        (ask.Pop("t", "g", lite=("a", "b"), filter=("sql", "a=1")), 2, 3),
        (ask.Pop("t", "g"), 0, 0),
        (ask.CreateSchedule("s", "* * * * *", "UTC", "t", "ONCE", ask.NewMessage(b"12345", "", "m")), 0, 5),
        (operations.StoreState(), 0, 0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_command_counts_its_entries_and_their_bytes(command: Any, entries: int, more: int) -> None:
    assert bytes_of(command) == COMMAND_BYTES + entries * ENTRY_BYTES + more


def test_a_settle_counts_its_sends_as_commands_of_their_own() -> None:
    send = ask.Send("t", (NO,) * 3, bytes=70)
    assert bytes_of(ask.Settle("g", sends=(send, send))) == COMMAND_BYTES + 2 * (ENTRY_BYTES + bytes_of(send))


def test_every_command_with_entries_of_any_number_names_their_field() -> None:
    settings = ["changes", "delays_ms", "filter", "joining", "queues", "reach", "retention", "start", "to", "types"]
    places = {(operations.PeekPiece, "begins"), (operations.Trace, "at")}
    lists = {
        (kind, name)
        for kind in HANDLERS
        for name, hint in kind.__annotations__.items()
        if any(word in str(hint) for word in ("tuple[", "dict[", "frozenset["))
    }
    short = {(kind, name) for kind, name in lists if name in settings and kind is not ask.ChangeInvisibleTime}
    assert lists - short - places == {(kind, field) for kind, _ in lists for field in kind.entries_fields} - short
