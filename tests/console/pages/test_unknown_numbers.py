"""Pages in front of an engine that does not know all numbers: – in their places, and charts with gaps."""

from collections.abc import Iterator

import pytest

import popmq
from popmq_console.charts import chart
from popmq_server.clock import FakeClock
from popmq_server.monitoring.history import STEP_MS
from tests.console.conftest import Browser, console
from tests.wire.served import Served
from tests.wire.stubs import GROUP, TOPIC, Stubs

STEP_S = STEP_MS / 1000


@pytest.fixture
def browser() -> Iterator[Browser]:
    clock = FakeClock()
    with Served(clock) as served, Stubs(served.endpoint) as stubs, console(served.endpoint) as url:
        stubs.create_topic(queues=1)
        stubs.create_group()
        stubs.send(b"a", b"b")
        stubs.pop(max_messages=1)
        clock.advance(STEP_MS)
        yield Browser(url)


def test_an_unknown_number_is_a_dash_on_each_page(browser: Browser) -> None:
    overview = browser.get("/").plain
    for said in ("Backlog 1", "In flight –", "Oldest –", "In use 1.0 MiB Free", "Commits –", "In quarantine –"):
        assert said in overview, said
    assert "Size – Delayed – Half –" in browser.get(f"/topic?name={TOPIC}").plain
    for path in ("/topics", "/groups", f"/group?name={GROUP}", f"/sessions?group={GROUP}"):
        answer = browser.get(path)
        assert (answer.status, "None" in answer.plain) == (200, False), path


def test_rows_with_unknown_numbers_are_sorted_by_them(browser: Browser) -> None:
    for path in ("/groups?sort=-in flight", f"/group?name={GROUP}&sort=oldest", "/topics?sort=-size"):
        assert browser.get(path.replace(" ", "+")).status == 200


def test_a_line_has_a_gap_where_its_number_is_unknown() -> None:
    values = [1, 2, None, 3, 4]
    points = [popmq.HistoryPoint(STEP_MS * number, in_flight=value) for number, value in enumerate(values, 1)]
    history = popmq.History(points, STEP_S, STEP_MS * len(points))
    (line,) = chart("Leased", "count", history, in_flight=lambda one: one.in_flight).lines
    assert (line.path.count("M"), line.path.count("L"), line.latest) == (2, 2, 4)
    (unknown,) = chart("Stored", "bytes", history, of=lambda one: None).lines
    assert (unknown.path, unknown.latest) == ("", None)
