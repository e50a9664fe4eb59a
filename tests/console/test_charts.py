"""The charts: what they draw of a history, and that they are there before the first visit and after a restart."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import popmq
from popmq import History, HistoryPoint
from popmq_console import charts
from popmq_console.charts import upper_edge
from popmq_console.views import seconds
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from tests.console.conftest import Answer, Browser, console


@pytest.mark.parametrize(
    ("most_s", "edge"),
    [(0, "100 ms"), (41, "50 s"), (51, "1 min"), (1220, "30 min"), (7201, "5 h"), (86_401, "2 d"), (9e5, "20 d")],
)
def test_the_upper_edge_of_a_chart_of_ages_is_a_round_time(most_s: float, edge: str) -> None:
    assert seconds(upper_edge(most_s, "seconds")) == edge


def test_the_upper_edge_of_other_charts_is_a_round_number() -> None:
    assert [upper_edge(value, "count") for value in (0, 3, 2144)] == [1, 5, 5000]


def hour(*ages_s: float) -> History:
    """Points of these ages, with a backlog that reaches the upper edge."""
    points = [HistoryPoint(time_ms=3_600_000 - round(1000 * age_s), backlog=500) for age_s in ages_s]
    return History(points, step=30, now_ms=3_600_000)


def path_of(history: History) -> str:
    (line,) = charts.chart("Backlog", "count", history, unfinished=lambda one: one.backlog).lines
    return line.path


@pytest.mark.parametrize(
    ("ages_s", "path"),
    [
        ((30, 0), "M648.0 0.0h.01L720.0 0.0"),
        ((0,), "M720.0 0.0h.01"),
        ((3570, 3540, 3000, 2970), "M6.0 0.0h.01L12.0 0.0M120.0 0.0h.01L126.0 0.0"),
        ((800, 770, 730), "M80.0 0.0h.01L104.0 0.0L136.0 0.0"),
    ],
)
def test_points_are_joined_but_for_those_between_which_the_broker_was_down(ages_s: Sequence[float], path: str) -> None:
    assert path_of(hour(*ages_s)) == path


MESSAGES, BACKLOG, OLDEST = "Messages a second", "Backlog", "Age of the oldest unfinished message"
OF_OVERVIEW = [MESSAGES, BACKLOG, OLDEST, "Lateness", "Dead letters", "Store"]
OF_TOPIC = [MESSAGES, BACKLOG, OLDEST, "Stored bytes"]
OF_GROUP = [MESSAGES, BACKLOG, OLDEST, "Dead letters"]


def titles(page: Answer) -> list[str]:
    return re.findall(r'<figure class="chart" data-k="([^"]*)"', page.text)


def test_the_first_visit_shows_the_time_before_it_also_of_before_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()

    def run(minutes: int) -> EmbeddedBroker:
        broker = EmbeddedBroker(tmp_path / "data", clock=clock, sync="none").start()
        with popmq.Client(broker.endpoint) as client:
            client.topics.create("orders", queues=1)
            client.groups.create("billing")
            for _ in range(2 * minutes):
                client.send("orders", ["a"] * 60)
                client.ack(client.pop("orders", "billing", 30))
                clock.advance(30_000)
        return broker

    run(10).stop()
    clock.advance(5 * 60_000)
    broker = run(5)
    try:
        with console(broker.endpoint, every_s=0.05) as url:
            browser = Browser(url)
            overview, topic, group = map(browser.get, ("/", "/topic?name=orders", "/group?name=billing"))
    finally:
        broker.stop()
    assert [titles(page) for page in (overview, topic, group)] == [OF_OVERVIEW, OF_TOPIC, OF_GROUP]
    for page in (overview, topic, group):
        label = "Messages a second in the last 1 h: sent 2/s now, popped 1/s now, acked 1/s now"
        assert f'aria-label="{label}"' in page.text
        (sent,) = re.findall(r'<path class="line s0" d="(M[^"]*)"', page.text)[:1]
        assert (sent.count("M"), sent.count("L")) == (2, 20 + 10 - 2)


def test_a_broker_that_has_just_started_says_when_its_charts_begin(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker, console(broker.endpoint) as url:
        page = Browser(url).get("/")
        assert titles(page) == []
        assert "The charts begin in 30 s at the latest." in page.plain


async def test_a_broker_without_a_history_is_shown_without_charts() -> None:
    class Earlier:
        async def history(self, topic: str, group: str) -> History:
            raise popmq.errors.Unsupported("no such call", code="UNSUPPORTED")

    class Login:
        numbers = Earlier()

    class Asked:
        login = Login()

    shown = await charts.drawn(Asked(), charts.overview)  # type: ignore[arg-type]
    assert (shown["charts"], "newer broker" in shown["no_charts"]) == ([], True)
