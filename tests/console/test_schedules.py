"""Schedules in the console: what is shown is what the broker keeps, and each action does it."""

import re
from typing import Any

import pytest

from popmq import errors
from tests.console.conftest import Browser, Site

NINE: dict[str, Any] = {"cron": "0 9 * * 1-5", "tz": "Europe/Berlin", "topic": "reports", "body": '{"kind": "daily"}'}


@pytest.fixture(autouse=True)
def topic(site: Site) -> None:
    site.client.topics.create("reports", queues=1)


@pytest.mark.slow
def test_a_schedule_is_created_and_shown_with_its_next_times_in_utc_and_in_its_zone(
    site: Site, operator: Browser
) -> None:
    assert "The schedule nine sends to reports." in operator.post("/schedules/create", name="nine", **NINE).plain
    kept = site.client.schedules.get("nine")
    assert (kept.cron, kept.tz, kept.missed, kept.message.body) == (
        "0 9 * * 1-5",
        "Europe/Berlin",
        "once",
        b'{"kind": "daily"}',
    )
    page = operator.get("/schedule?name=nine").plain
    assert '{"kind": "daily"}' in page
    times = re.findall(r"(\d\d):00:00\.000 (?:Mon|Tue|Wed|Thu|Fri) \S+ 09:00 (CES?T)", page)
    assert len(times) == 10
    assert all(int(utc) == {"CET": 8, "CEST": 7}[zone] for utc, zone in times)


def test_the_list_finds_by_a_part_of_the_name_or_topic(site: Site, operator: Browser) -> None:
    site.client.schedules.create("hourly", "@hourly", "reports", "x")
    assert "hourly" in operator.get("/schedules").plain
    assert "/schedule?name=hourly" in operator.get("/schedules?q=REP").text
    assert "No schedule has weekly" in operator.get("/schedules?q=weekly").plain


def test_a_schedule_is_paused_resumed_and_sent_at_once(site: Site, operator: Browser) -> None:
    site.client.schedules.create("yearly", "@yearly", "reports", "happy new year")
    paused = operator.post("/schedule/pause", name="yearly", paused="yes").plain
    assert "yearly is paused" in paused
    assert site.client.schedules.get("yearly").paused
    operator.post("/schedule/pause", name="yearly", paused="no")
    assert not site.client.schedules.get("yearly").paused
    site.client.groups.create("readers")
    site.client.pop("reports", "readers")
    assert "Sent as yearly@" in operator.post("/schedule/run", name="yearly").plain
    assert [one.body for one in site.client.pop("reports", "readers")] == [b"happy new year"]


def test_a_schedule_is_deleted_only_with_its_name_typed(site: Site, operator: Browser) -> None:
    site.client.schedules.create("doomed", "@daily", "reports", "x")
    assert operator.post("/schedule/delete", name="doomed", typed="domed").status == 400
    assert site.client.schedules.get("doomed").name == "doomed"
    operator.post("/schedule/delete", name="doomed", typed="doomed")
    with pytest.raises(errors.ScheduleNotFound):
        site.client.schedules.get("doomed")


@pytest.mark.parametrize(
    ("wrong", "status"), [({"cron": "61 * * * *"}, 400), ({"tz": "Mars/Olympus"}, 400), ({"topic": "nowhere"}, 404)]
)
def test_a_schedule_that_the_broker_refuses_is_shown_and_not_created(
    site: Site, operator: Browser, wrong: dict[str, str], status: int
) -> None:
    assert operator.post("/schedules/create", name="refused", **{**NINE, **wrong}).status == status
    assert "refused" not in [one.name for one in site.client.schedules.list()]
    assert operator.post("/schedules/create", name="refused", missed="some", **NINE).status == 400


@pytest.mark.slow
def test_a_key_without_the_right_admin_sees_no_schedule_and_cannot_act(site: Site, reader: Browser) -> None:
    site.client.schedules.create("kept", "@daily", "reports", "x")
    refused = reader.get("/schedules")
    assert (refused.status, "kept" in refused.plain) == (403, False)
    assert reader.post("/schedule/delete", name="kept", typed="kept").status == 403
    assert site.client.schedules.get("kept").name == "kept"
