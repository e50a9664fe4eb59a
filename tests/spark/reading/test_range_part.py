"""The requests of one task of mode=offsets: what it asks for, and when."""

from dataclasses import replace
from threading import Event
from typing import Any

import pytest

import popmq
from popmq_spark.offsets.range_part import RangePart, read_ranges
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
