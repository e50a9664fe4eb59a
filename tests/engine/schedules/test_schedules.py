"""Schedules in the engine: each occurrence is sent once, whatever the broker, the clock and the topic do."""

import logging
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded import operations
from popmq_server.embedded.fsck.repair import repair_folder
from popmq_server.embedded.rules.schedules import occurrences, schedules
from popmq_server.embedded.state.space import Room
from popmq_server.embedded.state.state import first_occurrence
from popmq_server.errors import Refused
from popmq_server.values.message import Extra
from popmq_server.values.records import Schedule
from tests.engine.conftest import MakeRig
from tests.engine.rig import DAY, HOUR, KEEP, MINUTE, SECOND, Rig, parsed, refusal

#: 2026-01-05 00:00 UTC, a Monday.
MONDAY = 1_767_571_200_000


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    made = make_rig(clock=FakeClock(MONDAY))
    made.topic()
    return made


def message(
    body: str, name: str = "s", keys: tuple[str, ...] = (), tag: str = "", properties: dict[str, str] | None = None
) -> ask.NewMessage:
    """What the api makes of the message of a schedule."""
    made = pb.Message(message_id=name, body=body.encode(), keys=keys, tag=tag, properties=properties or {})
    return ask.NewMessage(made.SerializeToString(), tag, name, keys)


def schedule(rig: Rig, name: str = "s", expression: str = "0 * * * *", **how: Any) -> Schedule:
    chosen = {"zone": "UTC", "topic": "t", "missed": "ONCE", "message": message("tick", name)} | how
    made: Schedule = rig.do(ask.CreateSchedule(name=name, cron=expression, **chosen))[0]
    return made


def now_of(rig: Rig, name: str = "s") -> Schedule:
    return rig.look(queries.Schedules(name=name))[0].schedule


def sent(rig: Rig, topic: str = "t") -> list[pb.Message]:
    return [parsed(row[0]) for row in rig.browse(topic).rows]


def times(rig: Rig) -> list[str]:
    return [one.properties["popmq_scheduled_for"][5:16] for one in sent(rig)]


def step_wall(rig: Rig, ms: int) -> None:
    assert isinstance(rig.clock, FakeClock)
    rig.clock.step_wall(ms)


def test_each_occurrence_is_a_message_with_an_id_of_its_own_and_its_time(rig: Rig) -> None:
    schedule(
        rig, "report", "30 9 * * *", zone="Europe/Berlin", message=message("go", "report", ("k",), "red", {"a": "b"})
    )
    rig.advance(8 * HOUR + 30 * MINUTE - 1)
    assert sent(rig) == []
    rig.advance(1)
    (one,) = sent(rig)
    assert (one.body, one.tag, list(one.keys)) == (b"go", "red", ["k"])
    assert one.message_id == "report@2026-01-05T08:30:00Z"
    assert one.properties == {
        "a": "b",
        "popmq_schedule": "report",
        "popmq_scheduled_for": "2026-01-05T08:30:00Z",
    }
    found = rig.do(operations.LookUpPiece("t", one.message_id, "", 8, 1 << 20))
    assert [parsed(row[0]).message_id for row in found.rows] == [one.message_id], "the look-up knows it"
    rig.advance(DAY)
    assert times(rig) == ["01-05T08:30", "01-06T08:30"]


def test_an_occurrence_has_one_id_which_what_reads_only_the_first_one_sees(rig: Rig) -> None:
    schedule(rig)
    rig.advance(HOUR)
    (row,) = rig.browse("t").rows
    assert row[0].startswith(b"\x0a\x16s@2026-01-05T01:00:00Z")
    assert b"\x0a\x01s" not in row[0]


def test_schedules_of_one_minute_are_examined_once_for_a_piece_and_not_for_each_of_them(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = occurrences.MESSAGES_MAX + 1
    for number in range(count):
        schedule(rig, f"s{number}", "* * * * *")
    examine = mock.Mock(side_effect=first_occurrence)
    monkeypatch.setattr(schedules, "first_occurrence", examine)
    rig.advance(MINUTE)
    assert len(sent(rig)) == count
    assert examine.call_count == 2


def test_the_timer_is_set_for_the_first_occurrence_of_all(rig: Rig) -> None:
    rig.settle()
    schedule(rig, "a", "0 * * * *")
    schedule(rig, "b", "* * * * *")
    rig.do(ask.DeleteSchedule("a"))
    assert rig.core.state.schedule_due == MONDAY + MINUTE
    rig.do(ask.PauseSchedule("b", True))
    assert rig.core.state.schedule_due == 0
    schedule(rig, "c", "0 * * * *")
    rig.do(ask.PauseSchedule("b", False))
    assert rig.core.next_due_ms == MONDAY + MINUTE
    tx = rig.core._begin()
    schedules.pause(tx, ask.PauseSchedule("b", True))
    assert rig.core.state.schedule_due == MONDAY + HOUR
    tx.abort()
    assert rig.core.state.schedule_due == MONDAY + MINUTE, "what is not committed is undone"
    rig.crash()
    assert rig.core.state.schedule_due == MONDAY + MINUTE


@pytest.mark.mechanism("C.01")
def test_a_kill_at_the_commit_of_an_occurrence_sends_it_once(rig: Rig) -> None:
    schedule(rig, expression="* * * * *")
    for lost in (True, False, True):
        rig.skip(MINUTE)
        if lost:  # the transaction of the occurrence is not committed
            tx = rig.core._begin()
            rig.core.timetable.run(tx, rig.core._timed(tx))
            tx.abort()
        else:
            rig.settle()
        rig.crash()
        rig.settle()
    assert times(rig) == ["01-05T00:01", "01-05T00:02", "01-05T00:03"]


@pytest.mark.mechanism("C.02")
@pytest.mark.parametrize(
    ("missed", "expected", "skipped"),
    [
        ("SKIP", ["01-05T05:00"], 4),
        ("ONCE", ["01-05T05:00"], 4),
        ("ALL", [f"01-05T0{hour}:00" for hour in range(1, 6)], 0),
    ],
)
def test_occurrences_missed_while_the_broker_is_down_follow_the_policy(
    rig: Rig, missed: str, expected: list[str], skipped: int
) -> None:
    schedule(rig, missed=missed)
    rig.skip(5 * HOUR + occurrences.GRACE_MS)
    rig.crash()
    rig.settle()
    assert times(rig) == expected
    assert (now_of(rig).skipped, now_of(rig).sent) == (skipped, len(expected))
    rig.advance(HOUR)
    assert len(times(rig)) == len(expected) + 1


@pytest.mark.mechanism("C.03")
def test_an_occurrence_later_than_the_grace_is_skipped_or_sent_for_all(rig: Rig) -> None:
    schedule(rig, "skip", missed="SKIP")
    schedule(rig, "once", missed="ONCE")
    rig.skip(HOUR + occurrences.GRACE_MS + 1)
    rig.settle()
    assert [one.properties["popmq_schedule"] for one in sent(rig)] == ["once"]


def test_all_sends_at_most_a_hundred_and_counts_the_rest(rig: Rig) -> None:
    schedule(rig, expression="* * * * *", missed="ALL")
    rig.skip(DAY)
    rig.settle()
    assert len(sent(rig)) == occurrences.MISSED_MAX
    assert times(rig)[-1] == "01-06T00:00"
    assert now_of(rig).skipped == occurrences.COUNTED_MAX - occurrences.MISSED_MAX


def test_many_due_messages_are_sent_in_pieces_in_order(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "MESSAGES_MAX", 7)
    for name in "abc":
        schedule(rig, name, missed="ALL")
    rig.skip(10 * HOUR)
    commits = 0
    while rig.due:
        rig.core.run([])
        commits += 1
    assert len(sent(rig)) == 30
    assert commits >= 5
    for name in "abc":
        mine = [one.properties["popmq_scheduled_for"] for one in sent(rig) if one.properties["popmq_schedule"] == name]
        assert mine == sorted(mine)


def test_a_wall_clock_that_is_set_back_repeats_nothing(rig: Rig) -> None:
    schedule(rig)
    rig.advance(2 * HOUR)
    step_wall(rig, -HOUR)
    rig.advance(HOUR)
    assert times(rig) == ["01-05T02:00"], "the clock shows two again"
    rig.advance(HOUR)
    assert times(rig) == ["01-05T02:00", "01-05T03:00"]


@pytest.mark.mechanism("C.04")
def test_a_wall_clock_that_was_years_ahead_does_not_stop_a_schedule_for_years(rig: Rig) -> None:
    step_wall(rig, 4 * 365 * DAY)
    schedule(rig)
    rig.advance(HOUR)
    step_wall(rig, -4 * 365 * DAY)
    rig.restart()
    rig.advance(MINUTE)
    assert now_of(rig).next_ms == MONDAY + 2 * HOUR
    rig.advance(HOUR)
    assert times(rig) == ["01-04T01:00", "01-05T02:00"]


def test_a_wall_clock_that_is_set_forward_makes_occurrences_due_within_a_minute(rig: Rig) -> None:
    schedule(rig)
    rig.settle()
    step_wall(rig, HOUR - MINUTE)
    rig.advance(MINUTE)
    assert times(rig) == ["01-05T01:00"]


@pytest.mark.mechanism("C.05")
def test_a_paused_schedule_leaves_its_occurrences_out_and_goes_on(rig: Rig) -> None:
    schedule(rig, missed="ALL")
    rig.do(ask.PauseSchedule("s", True))
    rig.advance(3 * HOUR + MINUTE)
    assert rig.do(ask.PauseSchedule("s", False)).next_ms == MONDAY + 4 * HOUR
    rig.advance(HOUR)
    assert times(rig) == ["01-05T04:00"]
    assert now_of(rig).skipped == 0


def test_run_sends_at_once_beside_the_occurrences(rig: Rig) -> None:
    schedule(rig)
    ids = [rig.do(ask.RunSchedule("s")) for _ in range(2)]
    assert ids == ["s@2026-01-05T00:00:00Z+0", "s@2026-01-05T00:00:00Z+1"]
    rig.do(ask.PauseSchedule("s", True))
    assert rig.do(ask.RunSchedule("s")) == "s@2026-01-05T00:00:00Z+2"
    assert [one.message_id for one in sent(rig)] == [*ids, "s@2026-01-05T00:00:00Z+2"]


@pytest.mark.mechanism("C.06")
def test_a_refused_occurrence_is_reported_and_counted_and_the_next_is_tried(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    schedule(rig)
    rig.do(ask.DeleteTopic("t"))
    with caplog.at_level(logging.WARNING, "popmq.events"):
        rig.advance(HOUR)
    assert "schedule 's' could not send to topic 't': there is no topic 't'" in caplog.text
    assert (now_of(rig).failed, now_of(rig).error) == (1, "there is no topic 't'")
    assert refusal(rig.run(ask.RunSchedule("s"))[0]) == "TOPIC_NOT_FOUND"
    rig.topic()
    rig.advance(HOUR)
    assert times(rig) == ["01-05T02:00"]
    rig.do(ask.UpdateTopic("t", 0, None, (("permission", "READ_ONLY"),)))
    rig.advance(HOUR)
    assert (now_of(rig).failed, len(sent(rig))) == (2, 1)


@pytest.mark.mechanism("C.07")
def test_a_full_store_keeps_an_occurrence_until_there_is_room(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule(rig)
    monkeypatch.setattr(Room, "has", lambda *_: False)
    rig.advance(HOUR)
    assert (sent(rig), now_of(rig).failed) == ([], 0)
    monkeypatch.undo()
    rig.advance(SECOND)
    assert times(rig) == ["01-05T01:00"]


def test_the_delay_of_an_occurrence_that_was_not_sent_is_shown(rig: Rig) -> None:
    assert rig.look(operations.StoreState()).schedules == (0, None)
    schedule(rig)
    rig.skip(HOUR - SECOND)
    assert rig.look(operations.StoreState()).schedules == (1, SECOND)
    rig.skip(3 * SECOND)
    assert rig.look(operations.StoreState()).schedules == (1, -2 * SECOND)
    rig.settle()
    assert rig.look(operations.StoreState()).schedules == (1, HOUR - 2 * SECOND)


def test_a_message_goes_where_its_topic_wants_it(rig: Rig) -> None:
    for kind, fields in (
        ("FIFO", {"message_group": "m"}),
        ("PRIORITY", {"priority": 3}),
        ("LITE", {"lite_topic": "room"}),
    ):
        rig.do(ask.CreateTopic(kind, 1 if kind == "LITE" else 4, False, KEEP, kind, lite_ttl_ms=DAY))
        made = pb.Message(message_id=kind, body=b"x", **fields)
        out = ask.NewMessage(made.SerializeToString(), "", kind, (), Extra(**fields))
        schedule(rig, kind, topic=kind, message=out)
    rig.advance(HOUR)
    assert [now_of(rig, kind).sent for kind in ("FIFO", "PRIORITY", "LITE")] == [1, 1, 1]
    (row,) = rig.browse("PRIORITY", 3).rows
    assert parsed(row[0]).message_id == "PRIORITY@2026-01-05T01:00:00Z"
    with pytest.raises(Refused, match="needs a FIFO topic"):
        schedule(rig, "no", message=message("x")._replace(extra=Extra(message_group="m")))


def test_creating_a_schedule_again_with_other_settings_is_refused(rig: Rig) -> None:
    schedule(rig)
    again = ask.CreateSchedule("s", "0 * * * *", "UTC", "t", "ONCE", message("tick", "s"))
    assert rig.do(again)[1] is True
    for changed in (
        {"cron": "1 * * * *"},
        {"zone": "Asia/Tokyo"},
        {"missed": "ALL"},
        {"message": message("tock", "s")},
    ):
        (refused,) = rig.run(replace(again, **changed))
        assert refusal(refused) == "ALREADY_EXISTS"
        assert f"another {next(iter(changed))}" in refused.message


@pytest.mark.parametrize("how", [{"expression": "nine"}, {"zone": "Mars"}, {"topic": "no"}, {"topic": "%DLQ%g"}])
def test_an_invalid_schedule_is_refused_and_changes_nothing(rig: Rig, how: dict[str, Any]) -> None:
    rig.group()
    with pytest.raises(Refused):
        schedule(rig, **how)
    for command in (ask.DeleteSchedule("s"), ask.PauseSchedule("s", True), ask.RunSchedule("s")):
        assert refusal(rig.run(command)[0]) == "SCHEDULE_NOT_FOUND"
    assert rig.read("cron") == rig.read("cronmsg") == []


def test_lists_come_in_pieces_by_name_and_show_what_comes_next(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "ROWS_AT_ONCE", 2)
    for name in "bac":
        schedule(rig, name)
    found = rig.look(queries.Schedules())
    assert ([row.schedule.name for row in found], found.after) == (["a", "b"], "b")
    rest = rig.look(queries.Schedules(after="b"))
    assert ([row.schedule.name for row in rest], rest.after) == (["c"], "")
    (row,) = rig.look(queries.Schedules(name="a", upcoming=3))
    assert row.upcoming == tuple(MONDAY + hour * HOUR for hour in (1, 2, 3))
    assert parsed(row.data).body == b"tick"


def test_there_is_a_bound_on_schedules(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "SCHEDULES_MAX", 2)
    schedule(rig, "a")
    schedule(rig, "b")
    with pytest.raises(Refused, match="2 schedules"):
        schedule(rig, "c")


def test_fsck_finds_what_is_wrong_with_a_schedule_and_repair_drops_it(make_rig: MakeRig) -> None:
    rig = make_rig("broken", clock=FakeClock(MONDAY))
    rig.topic()
    for name in ("a", "b", "c"):
        schedule(rig, name)

    def damage(kv: Any) -> None:
        kv.put("cron", b"a", bytes(kv.get("cron", b"a")).replace(b'"next_ms": 17', b'"next_ms": 16'))
        kv.delete("cronmsg", b"b")
        kv.delete("cron", b"c")

    rig.write(damage)
    found = rig.findings()
    assert any("schedule 'a': 16" in line and "is not an occurrence" in line for line in found)
    assert "schedule 'b' has no message" in found
    assert "the message of schedule 'c' has no schedule" in found
    rig.core.close()
    told = repair_folder(rig.folder).told
    assert sum("schedule" in line and "dropped" in line for line in told) == 2
    rig._start()
    rig.do(ask.DeleteSchedule("a"))
    assert rig.read("cron") == rig.read("cronmsg") == []


@pytest.mark.slow
def test_a_damaged_message_is_reported_and_never_sent(rig: Rig) -> None:
    schedule(rig)
    rig.write(lambda kv: kv.put("cronmsg", b"s", bytes(kv.get("cronmsg", b"s"))[:-1] + b"?"))  # type: ignore[arg-type]
    rig.advance(HOUR)
    assert (sent(rig), now_of(rig).failed) == ([], 1)
    assert "damaged" in now_of(rig).error
    rig.do(ask.DeleteSchedule("s"))
