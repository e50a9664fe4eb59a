"""Free pages that lie apart: a message that the broker itself has to store finds no adjacent ones, and the other
messages do not wait for it.

The large messages are stored before the map is scattered, so they are there, but cannot be stored a second time.
"""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import NewMessage, queries
from popmq_server.embedded import operations
from popmq_server.embedded.rules.sending import stages
from popmq_server.embedded.rules.sending.release_delayed import ReleasingDelayed
from popmq_server.embedded.rules.sending.transaction import CHECK_EVERY_MS, CHECKS_MAX, FIRST_CHECK_MS
from popmq_server.embedded.state.jobs import Job, JobFailed
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, message, parsed
from tests.engine.stages import committing, left, staging_of
from tests.engine.state.conftest import LARGE, scatter
from tests.engine.traffic.traffic_timing import dead_letters, delayed, halves, later, listen, make_topic, send, timed

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

HUGE = "x" * LARGE


def large(name: str, **asked_for: int | bool) -> Outgoing:
    return message(HUGE, name)._replace(extra=Extra(**asked_for))  # type: ignore[arg-type]


def names(rig: Rig, topic: str) -> list[str]:
    return [parsed(row[0]).message_id for row in rig.browse(topic).rows]


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The times at which a job found no pages."""
    found = list[int]()
    for kind in (Job, ReleasingDelayed):
        failed = kind.failed

        def counted(self: Job, failure: JobFailed, now_ms: int, failed: object = failed) -> None:
            found.append(now_ms)
            failed(self, failure, now_ms)  # type: ignore[operator]

        monkeypatch.setattr(kind, "failed", counted)
    return found


def seconds(rig: Rig, count: int) -> None:
    """Lets time pass in steps of the writer's timer, as with a clock that goes on."""
    for _ in range(count * 20):
        rig.advance(SECOND // 20)


# ── Delayed messages ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def delays(small_map: Rig) -> Rig:
    """In an hour three large messages are due, and small ones before, between and after them, on both clocks."""
    due_ms = small_map.now + HOUR
    send(small_map, later("a", due_ms=due_ms), topic="later")
    for place, name in enumerate("bcd"):
        send(small_map, large(name.upper(), due_ms=due_ms + place), topic="later")
        send(small_map, later(name, due_ms=due_ms + place), later(name * 2, delay_ms=HOUR + place), topic="later")
    scatter(small_map)
    return small_map


def test_a_delayed_message_without_adjacent_pages_delays_no_other(delays: Rig) -> None:
    delays.advance(HOUR)
    seconds(delays, 15)
    assert sorted(names(delays, "later")) == ["a", "b", "bb", "c", "cc", "d", "dd"]
    send(delays, later("e", delay_ms=SECOND), topic="later")
    seconds(delays, 2)
    assert names(delays, "later")[-1] == "e"
    assert delayed(delays) == ["B", "C", "D"]


@pytest.mark.parametrize("again", [False, True], ids=["", "after a crash"])
def test_delayed_messages_that_waited_for_pages_are_released_in_their_order_and_once(delays: Rig, again: bool) -> None:
    delays.advance(HOUR)
    seconds(delays, 15)
    if again:
        delays.crash()
    delays.do(ask.DeleteTopic("keep"))
    seconds(delays, 5)
    assert sorted(names(delays, "later")) == sorted(["a", "b", "bb", "c", "cc", "d", "dd", "B", "C", "D"])
    assert [name for name in names(delays, "later") if name.islower()] == ["a", "b", "bb", "c", "cc", "d", "dd"]
    assert delayed(delays) == []
    assert not delays.due


def test_one_of_the_delayed_messages_without_pages_is_tried_a_second_in_turns(delays: Rig, failures: list[int]) -> None:
    delays.advance(HOUR)
    seconds(delays, 15)
    failures.clear()
    seconds(delays, 12)
    assert 10 <= len(failures) <= 12
    assert not delays.due


def test_a_recalled_message_is_not_waited_for(delays: Rig) -> None:
    delays.advance(HOUR)
    seconds(delays, 15)
    for row in delays.look(queries.Delayed("later", 0, 10))[0]:
        delays.do(ask.Recall("later", row.recall_handle))
    seconds(delays, 5)
    assert delays.core.next_due_ms is None or delays.core.next_due_ms > delays.now + SECOND


# ── Half messages ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_half_message_that_is_given_up_without_adjacent_pages_delays_no_other_and_no_check(
    small_map: Rig, failures: list[int]
) -> None:
    make_topic(small_map, "half", "TRANSACTION")
    listen(small_map, "half")
    send(small_map, large("L", transaction=True), topic="half")
    send(small_map, later("s", transaction=True), topic="half")
    send(small_map, large("M", transaction=True), topic="half")
    scatter(small_map)
    small_map.skip(FIRST_CHECK_MS)
    for _ in range(CHECKS_MAX):
        checks = timed(small_map).checks
        small_map.do(operations.CountChecks(tuple((check.transaction, check.number) for check in checks)))
        small_map.skip(CHECK_EVERY_MS)
    send(small_map, later("n", transaction=True), topic="half")
    seconds(small_map, 20)
    assert [letter.message_id for letter in dead_letters(small_map)] == ["s"]
    assert halves(small_map, "half") == ["L", "M", "n"]
    failures.clear()
    seconds(small_map, 10)
    assert 5 <= len(failures) <= 15
    small_map.do(ask.DeleteTopic("keep"))
    seconds(small_map, 20)
    assert sorted(letter.message_id for letter in dead_letters(small_map)) == ["L", "M", "s"]


# ── Schedules ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_schedule_whose_message_has_no_adjacent_pages_delays_no_other(small_map: Rig, failures: list[int]) -> None:
    for name, body in (("a", HUGE), ("b", "tick"), ("c", HUGE), ("d", "tick")):
        made = message(body, name)
        small_map.do(
            ask.CreateSchedule(
                name=name,
                cron="*/5 * * * *",
                zone="UTC",
                topic="small",
                missed="ONCE",
                message=NewMessage(made.data, "", name, ()),
            )
        )
    scatter(small_map)
    small_map.advance(5 * MINUTE)
    seconds(small_map, 20)
    assert sent(small_map) == ["tick", "tick"]
    failures.clear()
    seconds(small_map, 10)
    assert 5 <= len(failures) <= 15
    assert not small_map.due
    small_map.do(ask.DeleteTopic("keep"))
    seconds(small_map, 10)
    assert sorted(len(body) for body in sent(small_map)) == [4, 4, LARGE, LARGE]


def sent(rig: Rig) -> list[str]:
    return [parsed(row[0]).body.decode() for row in rig.browse("small").rows]


# ── Staged messages ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stage_without_adjacent_pages_delays_no_other(small_map: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "BLOCK_MESSAGES_MAX", 4)
    for number, stage_id in enumerate("abc"):
        small_map.do(staging_of(stage_id, [message(HUGE, stage_id)], topic="small", batch=number))
    small_map.do(staging_of("s", [message("s", "s")], topic="small", batch=3))
    scatter(small_map)
    for number, stage_id in enumerate("abcs"):
        small_map.do(committing((stage_id, 1), topic="small", batch=number))
    seconds(small_map, 20)
    assert sent(small_map) == ["s"]
    small_map.do(ask.DeleteTopic("keep"))
    seconds(small_map, 10)
    assert sorted(len(body) for body in sent(small_map)) == [1, LARGE, LARGE, LARGE]
    assert left(small_map)[1:] == [0, 0]
