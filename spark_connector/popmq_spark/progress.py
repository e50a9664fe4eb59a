"""What a query has still to read, from the progress that Spark reports."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


@dataclass(frozen=True, slots=True)
class Backlog:
    """Of one topic, when its trigger began: what the trigger's own micro-batch then took is part of it.

    Filters are not considered.
    """

    topic: str
    messages: int
    oldest_age_ms: int | None  # since the oldest of them was stored; None in mode=offsets


def of_progress(progress: "StreamingQueryProgress") -> list[Backlog]:
    """The backlog of each topic that the query reads from PopMQ; empty if none is known."""
    return [row for source in progress.sources for row in _of_source(source.latestOffset)]


def _of_source(said: Any) -> Iterator[Backlog]:
    """What `reportLatestOffset` of a reader said; nothing of other sources."""
    found = json.loads(said) if isinstance(said, str) and said.startswith("{") else said
    if not isinstance(found, dict) or not found.keys() & {"behind", "ready"}:
        return
    for topic, row in found["topics"].items():
        yield Backlog(topic, row, None) if isinstance(row, int) else Backlog(topic, row["ready"], row["oldestAgeMs"])
