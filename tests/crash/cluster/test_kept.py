"""The page shows the counts of the campaign as they are kept, and promises made of them."""

from __future__ import annotations

from tests.crash.cluster.parts.kept import PAGE, kept, written
from tests.crash.cluster.parts.promises import PROMISES, Row, promises


def test_the_page_has_the_counts_that_were_kept() -> None:
    page = PAGE.read_text()
    assert written(page, kept()) == page


def test_a_promise_shows_the_sum_of_its_rows_and_what_nobody_counted_says_so() -> None:
    rows = [
        Row("a gateway is killed", "gateways", {"sent": 1_000, "lost": 2}, "", 1, 0.0),
        Row("a master is killed", "gateways", {"sent": 500, "lost": 1}, "", 1, 0.0),
        Row("a gateway is killed", "RocketMQ's proxies", {"sent": 7, "lost": 7}, "", 1, 0.0),
    ]
    lines = promises(rows).splitlines()
    assert "3 of 1,500 OK sends lost" in lines[2]
    assert len(lines) == 2 + len(PROMISES)
    assert "not counted yet" in promises([])
