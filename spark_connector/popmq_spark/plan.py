"""The plan of one micro-batch: the offset JSON that Spark keeps.

An offset names one *epoch* of one *owner* and says how that epoch is read: everything that decides which token holds
which message is in it, so that a restart with other options repeats the old batch, not a new one. Spark writes it to
`offsets/N` before the first message is popped under it.

    {"v": 1, "owner": "9f…", "epoch": 12, "parts": 4, "cap": 70000, "capBytes": 134217728, "chunkRows": 2000,
     "upto": {"queues": {"0": 4711}, "retry": 12} | null}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import popmq

VERSION = 1

#: Rows of one Pop. From 1,000 rows on the JVM's cost per batch is small; 2,000 of 1 KiB stay below 4 MiB.
CHUNK_ROWS = 2_000

#: Bounds of the bytes of one Pop: below, a chunk would be a handful of messages; above, an answer would be slow.
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 64 << 10, 4 << 20


class OffsetError(ValueError):
    """The checkpoint holds an offset that this release cannot read."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One epoch: `parts` tasks share `cap` messages and `cap_bytes` bytes, and pop nothing beyond `upto`.

    Epoch 0 is the start of a query: it has an owner and reads nothing.
    """

    owner: str
    epoch: int = 0
    parts: int = 0
    cap: int = 0
    cap_bytes: int = 0
    chunk_rows: int = CHUNK_ROWS
    upto: popmq.Position | None = None

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Self:
        """Raises OffsetError when another release, or another source, wrote it."""
        if offset.get("v") != VERSION:
            raise OffsetError(
                f"popmq: this release reads offsets of version {VERSION}; the checkpoint holds {dict(offset)!r}. "
                "Use the release that wrote it, or start with a new checkpoint"
            )
        upto = offset["upto"]
        return cls(
            owner=offset["owner"],
            epoch=offset["epoch"],
            parts=offset["parts"],
            cap=offset["cap"],
            cap_bytes=offset["capBytes"],
            chunk_rows=offset["chunkRows"],
            upto=upto and popmq.Position({int(queue): end for queue, end in upto["queues"].items()}, upto["retry"]),
        )

    def to_json(self) -> dict[str, Any]:
        """The same plan always gives the same text: Spark compares offsets as strings."""
        upto = self.upto and {
            "queues": {str(queue): end for queue, end in sorted(self.upto.queues.items())},
            "retry": self.upto.retry,
        }
        return {
            "v": VERSION,
            "owner": self.owner,
            "epoch": self.epoch,
            "parts": self.parts,
            "cap": self.cap,
            "capBytes": self.cap_bytes,
            "chunkRows": self.chunk_rows,
            "upto": upto,
        }

    def share(self, part: int) -> int:
        """Messages that part `part` (from 0) may pop; the shares sum to `cap` exactly."""
        return self.cap // self.parts + (part < self.cap % self.parts)

    def chunks(self, part: int) -> int:
        """How many tokens the part may use at most.

        A number known beforehand, not "until enough bytes arrived": a re-read that finds messages torn would otherwise
        seal further ones, and a sink that skips the batch as known would lose them. Twice what full chunks need: the
        bound in bytes may cut a chunk short.
        """
        return 2 * -(-self.share(part) // self.chunk_rows)

    def chunk_bytes(self, part: int) -> int:
        """Soft bound of one Pop's answer: all chunks together stay near `cap_bytes`."""
        return min(max(self.cap_bytes // self.parts // self.chunks(part), CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)
