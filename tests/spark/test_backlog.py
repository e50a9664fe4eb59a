"""A listener learns from Spark's progress what a query has still to read."""

import json
from types import SimpleNamespace
from typing import Any

import popmq
import popmq_spark
from popmq_spark.progress import Backlog
from tests.spark.conftest import TOPIC, Broker


def progress(*latest_offsets: Any) -> Any:
    """As much of Spark's progress as is asked for: one source for each."""
    said = [json.dumps(one) if isinstance(one, dict) else one for one in latest_offsets]
    return SimpleNamespace(sources=[SimpleNamespace(latestOffset=one) for one in said])


def test_the_backlog_of_each_topic_comes_out_of_the_progress_in_both_modes(broker: Broker) -> None:
    broker.client.topics.create("bills")
    broker.send(6)
    broker.clock.advance(2_000)
    broker.client.send("bills", [popmq.Message("x")] * 4)
    leased = broker.query(topics=f"{TOPIC}, bills")
    ranges = broker.query(topics=f"{TOPIC}, bills", mode="offsets", group="reading")
    del leased.options["topic"], ranges.options["topic"]
    leased.trigger()
    ranges.trigger()
    assert leased.reader
    assert ranges.reader
    found = popmq_spark.backlog(progress(leased.reader.reportLatestOffset(), ranges.reader.reportLatestOffset()))
    assert sorted(found[:2], key=lambda row: row.topic) == [Backlog("bills", 4, 0), Backlog(TOPIC, 6, 2_000)]
    assert sorted(found[2:], key=lambda row: row.topic) == [Backlog("bills", 4, None), Backlog(TOPIC, 6, None)]


def test_sources_of_other_kinds_and_those_that_have_not_looked_have_no_backlog() -> None:
    assert popmq_spark.backlog(progress(None, "null", {"orders": {"0": 12}}, "12")) == []
