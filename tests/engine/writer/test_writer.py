"""The writer's thread: what it takes together, and that nobody is left without an answer when it ends."""

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.writer import writer as writing
from popmq_server.embedded.writer.batch import Committed
from popmq_server.embedded.writer.core import Core
from popmq_server.embedded.writer.writer import (
    GATHER_BYTES_MAX,
    GATHER_TURNS_MAX,
    Gathering,
    Soon,
    Writer,
    at_once,
)
from popmq_server.errors import CommitFailed
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.limits import KEEP_MS_MAX
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
    office.writer.submit(operations.StoreState(), "look")
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


@pytest.mark.mechanism("S2.43")
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


@pytest.mark.mechanism("S2.03")
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


# ── When a batch begins ──────────────────────────────────────────────────────────────────────────────────────────────


def turns_of(arrivals: Iterable[int], size: int = 0) -> int:
    """Turns until a batch may begin, where so many commands of `size` bytes arrive in each turn."""
    gathering, turns = Gathering(), 0
    for turns, count in enumerate(arrivals):
        calls = [gathering.arrived(size) for _ in range(count)]
        assert sum(calls) == (turns == 0)
        assert not gathering.done
        if not gathering.turned():
            break
    assert gathering.done
    return turns + 1


def test_one_command_waits_for_one_turn_without_another() -> None:
    assert turns_of([1, 0, 1]) == 2


@pytest.mark.parametrize("turns", [2, 3, GATHER_TURNS_MAX - 1])
def test_commands_of_turns_in_a_row_are_gathered(turns: int) -> None:
    assert turns_of([3] * turns + [0]) == turns + 1


def test_a_loop_that_always_brings_commands_delays_a_batch_by_a_bounded_number_of_turns() -> None:
    assert turns_of([1] * 100) == GATHER_TURNS_MAX + 1


def test_a_batch_with_enough_bytes_begins_after_its_turn() -> None:
    assert turns_of([1] * 100, GATHER_BYTES_MAX) == 1
    assert turns_of([1] * 100, GATHER_BYTES_MAX // 3 + 1) == 3


def test_the_next_batch_is_gathered_like_the_first() -> None:
    gathering = Gathering()
    for _ in range(2):
        assert gathering.arrived(GATHER_BYTES_MAX - 1)
        assert not gathering.arrived(0)
        assert gathering.turned()
        assert not gathering.turned()
        gathering.taken(all_=True)
        assert not gathering.done


def test_commands_that_a_full_batch_left_need_no_turn() -> None:
    gathering = Gathering()
    gathering.arrived(0)
    while gathering.turned():
        pass
    gathering.taken(all_=False)
    assert gathering.done


class Loop:
    """An event loop that turns when a test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def turned(tmp_path: Path, loop: Loop) -> Iterator[Office]:
    """A running writer whose loop turns when the test says so."""
    office = Office(tmp_path / "data", loop.soon)
    office.writer.start()
    yield office
    office.close()


def begins(office: Office) -> Any:
    with office.writer._lock:
        return office.writer._begins()


def test_sends_of_two_turns_share_a_commit(turned: Office, loop: Loop) -> None:
    turned.writer.submit(sending("a"), "a")
    loop.turn()
    assert not begins(turned)
    turned.writer.submit(sending("b"), "b")
    loop.turn()
    assert not begins(turned)
    loop.turn()
    assert loop.calls == []
    turned.answer("b")
    assert turned.groups == [["a", "b"]]


def test_a_due_job_takes_what_waits_along(turned: Office, loop: Loop) -> None:
    """Their turn comes to an end later, and then there is nothing to begin."""
    turned.writer.submit(ask.Pop("t", "g", invisible_ms=MINUTE), "pop")
    turned.clock.advance(MINUTE)
    turned.answer("pop")
    loop.turn()
    loop.turn()
    assert loop.calls == []
    assert not begins(turned)


def test_a_writer_that_stops_answers_what_is_being_gathered(turned: Office) -> None:
    turned.writer.submit(sending("a"), "a")
    turned.writer.stop()
    assert turned.groups == [["a"]]


def test_after_a_lone_command_the_next_one_waits_for_no_further_turn() -> None:
    gathering = Gathering()
    gathering.arrived(0)
    assert gathering.turned(), "the first one may be followed by others"
    assert not gathering.turned()
    gathering.taken(all_=True)
    gathering.arrived(0)
    assert not gathering.turned()


def test_a_send_and_the_pop_that_waited_for_it_count_as_one_command() -> None:
    gathering = Gathering()
    gathering.arrived(0)
    gathering.taken(all_=True)
    for _ in range(2):
        gathering.arrived(0)
        gathering.arrived(0, joins=True)
        assert not gathering.turned()
        gathering.taken(all_=True)


def test_after_a_lone_command_two_that_come_in_one_turn_are_gathered() -> None:
    gathering = Gathering()
    gathering.arrived(0)
    gathering.taken(all_=True)
    gathering.arrived(0)
    gathering.arrived(0)
    assert gathering.turned()
