"""Schedules on the wire: made, shown, paused, run and deleted; and what their messages look like."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire.stubs import CALL_S, TOPIC, Stubs

HOUR = 3_600_000


def create(stubs: Stubs, name: str = "tick", **fields: Any) -> pb.CreateScheduleResponse:
    chosen: dict[str, Any] = {"cron": "0 * * * *", "topic": TOPIC, "message": pb.Message(body=b"go")} | fields
    request = pb.CreateScheduleRequest(schedule=pb.Schedule(name=name, **chosen))
    answer: pb.CreateScheduleResponse = stubs.admin.CreateSchedule(request, timeout=CALL_S)
    return answer


def shown(stubs: Stubs, name: str = "tick", upcoming: int = 0) -> pb.GetScheduleResponse:
    request = pb.GetScheduleRequest(name=name, upcoming=upcoming)
    answer: pb.GetScheduleResponse = stubs.admin.GetSchedule(request, timeout=CALL_S)
    return answer


def test_a_schedule_is_shown_as_it_was_made_with_its_next_times(shop: Stubs, clock: FakeClock) -> None:
    message = pb.Message(body=b"go", tag="red", keys=["k"], properties={"a": "b", "c": "d"}, priority=0)
    made = create(shop, message=message, time_zone="Asia/Kolkata", missed=pb.ALL)
    next_ms = clock.now_ms() - (clock.now_ms() - HOUR // 2) % HOUR + HOUR
    assert not made.existed
    assert create(shop, message=message, time_zone="Asia/Kolkata", missed=pb.ALL).existed
    found = shown(shop, upcoming=2)
    assert found.upcoming_ms == [next_ms, next_ms + HOUR], "half past the hour, in UTC"
    assert found.schedule == made.schedule
    assert (found.schedule.message, found.schedule.time_zone, found.schedule.missed) == (
        message,
        "Asia/Kolkata",
        pb.ALL,
    )


def test_consumers_get_the_message_at_its_time_with_its_time(shop: Stubs, clock: FakeClock) -> None:
    due_ms = create(shop).schedule.next_ms
    clock.advance(due_ms - clock.now_ms())
    (delivery,) = shop.pop().deliveries
    assert delivery.message.message_id.startswith("tick@")
    assert dict(delivery.message.properties) == {
        "popmq_schedule": "tick",
        "popmq_scheduled_for": delivery.message.message_id.removeprefix("tick@"),
    }
    assert shown(shop).schedule.last_ms == due_ms


def test_a_paused_schedule_has_no_next_time_and_runs_on_request(shop: Stubs) -> None:
    before = create(shop).schedule
    paused = shop.admin.PauseSchedule(pb.PauseScheduleRequest(name="tick"), timeout=CALL_S).schedule
    assert (paused.paused, paused.next_ms) == (True, 0)
    run = shop.admin.RunSchedule(pb.RunScheduleRequest(name="tick"), timeout=CALL_S)
    assert [delivery.message.message_id for delivery in shop.pop().deliveries] == [run.message_id]
    resumed = shop.admin.ResumeSchedule(pb.ResumeScheduleRequest(name="tick"), timeout=CALL_S).schedule
    assert (resumed.next_ms, resumed.sent) == (before.next_ms, 1)


@pytest.mark.parametrize("size", [1, 2, 0])
def test_the_list_comes_in_pages_by_name(shop: Stubs, size: int) -> None:
    for name in "cab":
        create(shop, name)
    found, token = list[str](), ""
    while True:
        request = pb.ListSchedulesRequest(page_size=size, page_token=token)
        page = shop.admin.ListSchedules(request, timeout=CALL_S)
        found += [row.name for row in page.schedules]
        token = page.next_page_token
        if not token:
            break
    assert found == ["a", "b", "c"]
    shop.admin.DeleteSchedule(pb.DeleteScheduleRequest(name="a"), timeout=CALL_S)
    assert len(shop.admin.ListSchedules(pb.ListSchedulesRequest(), timeout=CALL_S).schedules) == 2
