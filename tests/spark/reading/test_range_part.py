"""The requests of one task of mode=offsets: what it asks for, and when."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

import popmq
from popmq.pull import PulledColumns
from popmq_spark.offsets import range_part
from popmq_spark.offsets.range_part import AHEAD, PULL_ROWS, RangePart, read_ranges
from popmq_spark.ranges import Span
from tests.spark.conftest import Broker


@pytest.mark.slow
def test_columns_that_are_not_asked_for_are_not_sent(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send(3, size=1000)
    stream = broker.query(mode="offsets")
    stream.trigger()
    (part,) = stream.parts()
    assert isinstance(part, RangePart)
    without = replace(part, schema=part.schema.remove(part.schema.get_field_index("body")))
    asked: list[bool] = []  # for the body
    pull = popmq.Client.pull_columns

    def pull_columns(client: popmq.Client, *place: Any, **how: Any) -> Any:
        asked.append("body" in how["columns"])
        return pull(client, *place, **how)

    monkeypatch.setattr(popmq.Client, "pull_columns", pull_columns)
    assert len(stream.read(without)) == len(stream.read(part)) == 3
    assert set(asked[: len(asked) // 2]) == {False}
    assert set(asked[len(asked) // 2 :]) == {True}


def test_the_next_queue_is_asked_while_spark_takes_the_rows_of_this_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(10)
    stream = broker.query(mode="offsets", maxPartitions=1)
    stream.trigger()
    (part,) = stream.parts()
    assert isinstance(part, RangePart)
    assert len(part.spans) == 2
    asked = {span.queue: Event() for span in part.spans}
    pull = popmq.Client.pull_columns

    def pull_columns(client: popmq.Client, topic: str, queue: int, *place: Any, **how: Any) -> Any:
        asked[queue].set()
        return pull(client, topic, queue, *place, **how)

    monkeypatch.setattr(popmq.Client, "pull_columns", pull_columns)
    batches = read_ranges(part)
    rows = next(batches).num_rows
    assert asked[part.spans[1].queue].wait(10)
    assert rows + sum(batch.num_rows for batch in batches) == 10


class Answers:
    """Answers for pieces: each has the offsets of its piece, but at most `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[Span] = []
        self.under_way: list[int] = []  # pieces without an answer taken, whenever one is asked for
        self.taken = 0

    def __call__(self, piece: Span) -> Future[PulledColumns]:
        self.asked.append(piece)
        self.under_way.append(len(self.asked) - self.taken)
        stop = min(piece.end, piece.start + self.most)
        offsets = list(range(piece.start, stop))
        empty: dict[str, list[Any]] = {name: [] for name in popmq.Columns.__dataclass_fields__}
        coming = Future[PulledColumns]()
        coming.set_result(PulledColumns("FOUND", popmq.Columns(**empty | {"offset": offsets}), stop, 0, piece.end))
        return coming


def pages(part: RangePart, answers: Answers) -> list[tuple[int, int]]:
    """The queue and offset of each row."""
    found = []
    for piece, page in range_part._Pages(part, answers):
        answers.taken += 1
        found += [(piece.queue, offset) for offset in page.columns.offset]
    return found


@pytest.fixture
def make(broker: Broker) -> Callable[..., RangePart]:
    """`make(Span(…), …, tag="eu")`: a part with these spans."""
    broker.send(1)
    stream = broker.query(mode="offsets")
    stream.trigger()
    (part,) = stream.parts()
    assert isinstance(part, RangePart)
    return lambda *spans, **how: replace(part, spans=spans, **how)


@pytest.mark.parametrize("most", [PULL_ROWS, 1_000, 7], ids=["whole answers", "bounded", "a few"])
def test_pulls_that_are_under_way_together_give_every_row_once_and_in_order(
    make: Callable[..., RangePart], most: int
) -> None:
    part = make(Span("t", 0, 5, 20_005), Span("t", 1, 0, 3), Span("t", 2, 100, 9_100))
    answers = Answers(most)
    expected = [(span.queue, offset) for span in part.spans for offset in range(span.start, span.end)]
    assert pages(part, answers) == expected
    assert max(answers.under_way) == AHEAD + 1, "and the one that Spark takes"
    assert len(answers.asked) <= len(expected) / most + 4 * AHEAD, "short answers make the next pieces short"


def test_behind_a_filter_a_pull_is_asked_for_when_the_one_before_has_arrived(make: Callable[..., RangePart]) -> None:
    answers = Answers(1_000)
    assert len(pages(make(Span("t", 0, 0, 9_500), tag="eu"), answers)) == 9_500
    assert [piece.start for piece in answers.asked] == list(range(0, 9_500, 1_000))
    assert max(answers.under_way) <= 2
