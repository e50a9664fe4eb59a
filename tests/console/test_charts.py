"""The charts of the first page."""

import pytest

from popmq_console.charts import upper_edge
from popmq_console.views import seconds


@pytest.mark.parametrize(
    ("most_s", "edge"),
    [(0, "100 ms"), (41, "50 s"), (51, "1 min"), (1220, "30 min"), (7201, "5 h"), (86_401, "2 d"), (9e5, "20 d")],
)
def test_the_upper_edge_of_a_chart_of_ages_is_a_round_time(most_s: float, edge: str) -> None:
    assert seconds(upper_edge(most_s, "seconds")) == edge


def test_the_upper_edge_of_other_charts_is_a_round_number() -> None:
    assert [upper_edge(value, "count") for value in (0, 3, 2144)] == [1, 5, 5000]
