"""The plan of one micro-batch of `mode=offsets`: a range of offsets for each queue, in Spark's own log.

    {"v": 2, "parts": 4, "tag": null, "sql": "a > 5", "created": {"orders": 1769860800123},
     "topics": {"orders": {"0": [100, 250], "1": [80, 80]}}}

A range is `[from, to)`. The offset has `from` too, because Spark asks for the start of a query several times and may
pass another answer to `partitions()` than to `latestOffset()`: the end alone decides what is read, so it is the same
after a restart with other options. `topics` is null before the first micro-batch. `created` says which topic of a name
the offsets are of: when it was created, in ms since 1970. Offsets of previews do not say it; then it is not compared.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import randrange
from typing import Any, NamedTuple, Self

from popmq_spark.positions import OffsetError

VERSION = 2

#: Topic → queue → offset.
Positions = dict[str, dict[int, int]]


class Span(NamedTuple):
    """Messages of one queue, from `start` on and below `end`.

    Offsets are assigned without gaps, so its length is the number of its messages, if none is gone; only retry topics,
    and dead-letter topics after a redrive, have gaps.
    """

    topic: str
    queue: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ranges:
    """One micro-batch: `parts` tasks read `spans`, through a filter. Without `begun` it is the start of a query."""

    spans: tuple[Span, ...] = ()
    parts: int = 0
    tag: str | None = None
    sql: str | None = None
    begun: bool = field(default=True)
    created: Mapping[str, int] = field(default_factory=dict)  # topic → ms since 1970

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Self:
        """Raises OffsetError when another release, mode, or source wrote it."""
        if offset.get("v") != VERSION:
            raise OffsetError(
                f"popmq: mode=offsets reads offsets of version {VERSION}; the checkpoint holds {dict(offset)!r}. "
                "Use the mode and the release that wrote it, or start with a new checkpoint"
            )
        topics = offset["topics"]
        spans = tuple(
            Span(topic, int(queue), *ends) for topic, queues in (topics or {}).items() for queue, ends in queues.items()
        )
        created = offset.get("created", {})
        return cls(spans, offset["parts"], offset["tag"], offset["sql"], topics is not None, created)

    def to_json(self) -> dict[str, Any]:
        """The same plan always gives the same text: Spark compares offsets as strings."""
        topics: dict[str, dict[str, list[int]]] = {}
        for span in sorted(self.spans):
            topics.setdefault(span.topic, {})[str(span.queue)] = [span.start, span.end]
        return {
            "v": VERSION,
            "parts": self.parts,
            "tag": self.tag,
            "sql": self.sql,
            "created": dict(sorted(self.created.items())),
            "topics": topics if self.begun else None,
        }

    @property
    def positions(self) -> Positions:
        """The start of the next micro-batch."""
        found: Positions = {}
        for span in self.spans:
            found.setdefault(span.topic, {})[span.queue] = span.end
        return found

    @property
    def rows(self) -> int:
        """Messages in all spans, before the filter."""
        return sum(span.end - span.start for span in self.spans)

    def shares(self) -> Iterator[tuple[Span, ...]]:
        """The spans of each task: together all, each once, of one size but for one row."""
        at = 0
        for part in range(self.parts):
            end = self.rows * (part + 1) // self.parts
            yield tuple(self._between(at, end))
            at = end

    def _between(self, first: int, last: int) -> Iterator[Span]:
        """The rows `first` to `last` of all spans, one span after the other in their order.

        Rows are counted by their offsets, whether or not they still exist: the shares are the same at every read.
        """
        before = 0
        for span in sorted(self.spans):
            start, end = max(first - before, 0), min(last - before, span.end - span.start)
            if start < end:
                yield span._replace(start=span.start + start, end=span.start + end)
            before += span.end - span.start


def parts_of(rows: int, at_least: int, rows_of_one: int, at_most: int) -> int:
    """The number of tasks for `rows` rows; none of them is empty."""
    return min(max(at_least, -(-rows // rows_of_one)), at_most, rows)


def admitted(backlog: Mapping[tuple[str, int], int], rows: int) -> dict[tuple[str, int], int]:
    """The share of `rows` that each queue gives, in proportion to its messages; in sum `rows`, or all messages.

    Chance decides which queues the shares are rounded up for, so that a queue with one message gets its turn also
    while others have so many that its share is always less than one.
    """
    total = sum(backlog.values())
    if total <= rows:
        return dict(backlog)
    shares, before, turn = {}, 0, randrange(total)
    for queue, has in backlog.items():
        shares[queue] = ((before + has) * rows + turn) // total - (before * rows + turn) // total
        before += has
    return shares
