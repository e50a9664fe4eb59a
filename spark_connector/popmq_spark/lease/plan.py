"""The plan of one micro-batch: the offset JSON that Spark keeps.

An offset names one *epoch* of one *owner* and says how that epoch is read: everything that decides which token holds
which message is in it, so that a restart with other options repeats the old batch, not a new one. Spark writes it to
`offsets/N` before the first message is popped under it.

    {"v": 3, "group": "spark", "owner": "9f…", "epoch": 12, "parts": 4, "capBytes": 134217728, "chunkRows": 2000,
     "chunkBytes": 4194304, "tag": null, "sql": "a > 5",
     "reads": ["orders"],
     "topics": {"orders": {"id": 7, "cap": 70000, "upto": {"queues": {"0": 4711}, "retry": 12} | null}}}

The group and the ids of topics are those of the tokens: another group, and another topic of the same name, would seal
other messages to them. Offsets of previews have neither, and no `chunkBytes`: their Pops do not follow the bytes.
`reads` are the topics that the options name, null for a pattern, so that a restart with others is noticed.

The rows of all topics, one topic after the other, are cut into tasks of one size; a task that has rows of two topics
reads one after the other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import popmq
from popmq_spark.positions import OffsetError

VERSION = 3

#: Rows of one Pop. From 1,000 rows on the JVM's cost per batch is small; 2,000 of 1 KiB stay below 4 MiB.
CHUNK_ROWS = 2_000

#: Bounds of the bytes of one Pop: below, a chunk would be a handful of messages; above, an answer would be slow.
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 64 << 10, 4 << 20


class Cap(NamedTuple):
    """The limits of an epoch in one topic: `rows` messages, none beyond `upto`. `topic_id` 0: not compared."""

    rows: int
    upto: popmq.Position | None = None
    topic_id: int = 0


class Slice(NamedTuple):
    """The part of one task in one topic: `share` messages at most, in `chunks` Pops of `chunk_bytes`, a soft bound.

    A number of Pops known beforehand, not "until enough bytes arrived": a re-read that finds messages torn would
    otherwise seal further ones, and a sink that skips the batch as known would lose them. Twice what full chunks need,
    as the bound in bytes may cut a chunk short; of large messages as many as the bytes need.
    """

    topic: str
    share: int
    upto: popmq.Position | None
    chunks: int
    chunk_bytes: int
    topic_id: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One epoch: `parts` tasks share the messages of `topics` and `cap_bytes` bytes, through a filter.

    Epoch 0 is the start of a query: it has an owner and reads nothing.
    """

    owner: str
    epoch: int = 0
    parts: int = 0
    topics: Mapping[str, Cap] = field(default_factory=dict)
    cap_bytes: int = 0
    chunk_rows: int = CHUNK_ROWS
    chunk_bytes: int = CHUNK_BYTES_MAX
    tag: str | None = None
    sql: str | None = None
    group: str = ""
    reads: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Self:
        """Raises OffsetError when another release, or another source, wrote it."""
        if offset.get("v") != VERSION:
            raise OffsetError(
                f"popmq: mode=lease reads offsets of version {VERSION}; the checkpoint holds {dict(offset)!r}. "
                "Use the mode and the release that wrote it, or start with a new checkpoint"
            )
        return cls(
            owner=offset["owner"],
            epoch=offset["epoch"],
            parts=offset["parts"],
            topics={
                topic: Cap(cap["cap"], _position(cap["upto"]), cap.get("id", 0))
                for topic, cap in offset["topics"].items()
            },
            cap_bytes=offset["capBytes"],
            chunk_rows=offset["chunkRows"],
            chunk_bytes=offset.get("chunkBytes", 0),
            tag=offset["tag"],
            sql=offset["sql"],
            group=offset.get("group", ""),
            reads=tuple(offset.get("reads") or ()),
        )

    def to_json(self) -> dict[str, Any]:
        """The same plan always gives the same text: Spark compares offsets as strings."""
        return {
            "v": VERSION,
            "group": self.group,
            "owner": self.owner,
            "epoch": self.epoch,
            "parts": self.parts,
            "capBytes": self.cap_bytes,
            "chunkRows": self.chunk_rows,
            "chunkBytes": self.chunk_bytes,
            "tag": self.tag,
            "sql": self.sql,
            "reads": list(self.reads) or None,
            "topics": {
                topic: {"id": cap.topic_id, "cap": cap.rows, "upto": _as_json(cap.upto)}
                for topic, cap in sorted(self.topics.items())
            },
        }

    @property
    def cap(self) -> int:
        """Messages of all topics that the epoch may take."""
        return sum(cap.rows for cap in self.topics.values())

    def slices(self, part: int) -> Iterator[Slice]:
        """The slices of the task `part` (from 0). All slices of a topic sum to its cap exactly."""
        first, last = self.cap * part // self.parts, self.cap * (part + 1) // self.parts
        before = 0
        for topic, cap in sorted(self.topics.items()):
            share = min(last - before, cap.rows) - max(first - before, 0)
            if share > 0:
                chunks, size = self._chunks(share)
                yield Slice(topic, share, cap.upto, chunks, size, cap.topic_id)
            before += cap.rows

    def _chunks(self, share: int) -> tuple[int, int]:
        """The number of chunks and the bytes of each. All chunks together stay near `cap_bytes`."""
        chunks = 2 * -(-share // self.chunk_rows)
        budget = self.cap_bytes * share // self.cap
        size = min(max(budget // chunks, CHUNK_BYTES_MIN), self.chunk_bytes or CHUNK_BYTES_MAX)
        if self.chunk_bytes:
            chunks = max(chunks, min(budget // size, share))
        return chunks, size


def _position(upto: Mapping[str, Any] | None) -> popmq.Position | None:
    if upto is None:
        return None
    return popmq.Position({int(queue): end for queue, end in upto["queues"].items()}, upto["retry"])


def _as_json(upto: popmq.Position | None) -> dict[str, Any] | None:
    if upto is None:
        return None
    return {"queues": {str(queue): end for queue, end in sorted(upto.queues.items())}, "retry": upto.retry}
