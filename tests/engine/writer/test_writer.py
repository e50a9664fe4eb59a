"""The writer's thread: what it takes together, and that nobody is left without an answer when it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from popmq_server import commands as ask
from popmq_server.clock import FakeClock
from popmq_server.commands import queries
from popmq_server.errors import CommitFailed
from popmq_server.model.ids import GroupId, TopicId
from popmq_server.model.limits import KEEP_MS_MAX
from popmq_server.storage.store import Store
from popmq_server.writer import writer as writing
from popmq_server.writer.batch import Committed
from popmq_server.writer.core import Core
from popmq_server.writer.writer import Soon, Writer, at_once
from tests.engine.faults import Fault, failing
from tests.engine.rig import MINUTE, refusal, sending
from tests.engine.traffic.traffic import group

#: Nothing here takes so long; a test that waits for it has failed.
LATE_S = 30


class Office:
    """A writer, and the answers that it delivered."""

    def __init__(self, folder: Path, soon: Soon = at_once) -> None:
        self.clock = FakeClock()
        self.store = Store(folder, 1 << 26, "none")
        self.core = Core(self.store, self.clock)
        self.groups: list[list[Any]] = []
        self.answers: dict[Any, Any] = {}
        self.failures: list[BaseException] = []
        self._arrived = threading.Condition()
        self.writer = Writer(self.core, self.clock, self._deliver, self.failures.append, soon)
        self.core.run([ask.CreateTopic("t", 1, False, KEEP_MS_MAX), group("g", 3)])

    def close(self) -> None:
        if self.writer._thread.ident is not None:
            self.writer.stop()
        self.core.close()

    def _deliver(self, tickets: list[Any], committed: Committed) -> None:
        with self._arrived:
            self.groups.append(tickets)
            self.answers |= dict(zip(tickets, committed.results, strict=True))
            self._arrived.notify_all()

    def answer(self, ticket: Any) -> Any:
        """Waits for one."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: ticket in self.answers, LATE_S), f"no answer for {ticket}"
            return self.answers[ticket]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path / "data")
    yield office
    office.close()


def test_waiting_commands_form_one_commit_acks_first_and_pops_last(office: Office) -> None:
    office.writer.submit(ask.Pop("t", "g"), "pop")
    office.writer.submit(sending("a"), "send")
    office.writer.submit(queries.Store(), "look")
    office.writer.submit(ask.Ack("g", ()), "ack")
    office.writer.start()
    assert len(office.answer("pop").rows) == 1
    assert office.groups == [["ack", "send", "pop", "look"]]


def test_a_commit_batch_is_bounded_in_commands_and_keeps_places_for_pops(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BATCH_COMMANDS_MAX", 10)
    monkeypatch.setattr(writing, "BATCH_SHARE", 4)
    for number in range(20):
        office.writer.submit(sending("a"), f"send {number}")
    for number in range(6):
        office.writer.submit(ask.Pop("t", "g"), f"pop {number}")
    office.writer.start()
    office.answer("send 19")
    office.answer("pop 5")
    assert [len(tickets) for tickets in office.groups] == [10, 10, 6]
    assert sum(ticket.startswith("pop") for ticket in office.groups[0]) == 4


def test_a_commit_batch_is_bounded_in_bytes(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BATCH_BYTES_MAX", 250)
    for number in range(6):
        office.writer.submit(ask.Send("t", (), "", 0, 100), number)
    office.writer.start()
    office.answer(5)
    assert office.groups == [[0, 1, 2], [3, 4, 5]]


def test_a_fake_clock_that_moves_finds_everything_done(office: Office) -> None:
    office.writer.start()
    office.writer.submit(sending("a"), "send")
    office.writer.submit(ask.Pop("t", "g", invisible_ms=MINUTE), "pop")
    office.answer("pop")
    office.clock.advance(MINUTE - 1)
    assert office.core.state.stat[GroupId(2), TopicId(1)].retry == 0
    office.clock.advance(1)
    assert office.core.state.stat[GroupId(2), TopicId(1)].retry == 1


def test_a_fake_clock_that_moves_reports_a_writer_that_does_not_finish(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    run = office.core.run

    def held(commands: list[Any]) -> Committed:
        assert goes_on.wait(LATE_S)
        return run(commands)

    monkeypatch.setattr(office.core, "run", held)
    monkeypatch.setattr(writing, "SETTLE_S", 0.01)
    office.writer.start()
    office.writer.submit(sending("a"), "send")
    with pytest.raises(TimeoutError, match="writer"):
        office.clock.advance(1)
    goes_on.set()
    office.answer("send")


def test_a_failed_commit_refuses_every_call_and_ends_the_writer(office: Office) -> None:
    for number in range(3):
        office.writer.submit(sending("a"), number)
    with failing(office.store, Fault.IO):
        office.writer.start()
        assert [refusal(office.answer(number)) for number in range(3)] == ["UNAVAILABLE"] * 3
        office.writer._thread.join(LATE_S)
    assert [type(error) for error in office.failures] == [CommitFailed]
    office.writer.submit(sending("b"), "later")
    assert refusal(office.answer("later")) == "UNAVAILABLE"
    office.clock.advance(MINUTE)


def test_commands_that_wait_during_a_failed_commit_are_refused_too(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BATCH_COMMANDS_MAX", 1)
    for number in range(5):
        office.writer.submit(sending("a"), number)
    with failing(office.store, Fault.IO):
        office.writer.start()
        assert [refusal(office.answer(number)) for number in range(5)] == ["UNAVAILABLE"] * 5
    office.writer._thread.join(LATE_S)


def test_a_writer_answers_waiting_commands_before_it_stops(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BATCH_COMMANDS_MAX", 1)  # so that all but the first still wait when it is stopped
    writer, run = office.writer, office.core.run

    def run_once_it_is_stopped(commands: list[Any]) -> Any:
        with writer._event:
            writer._event.wait_for(lambda: writer._stopping)
        return run(commands)

    monkeypatch.setattr(office.core, "run", run_once_it_is_stopped)
    for number in range(50):
        writer.submit(sending(f"m{number}"), number)
    writer.start()
    writer.stop()
    assert [refusal(office.answers[number]) for number in range(50)] == [""] * 50
    office.writer.submit(sending("late"), "late")
    assert refusal(office.answer("late")) == "UNAVAILABLE"
