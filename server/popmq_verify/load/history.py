"""Histories: the calls of every client with their times and answers.

One file for each client, one line of JSON for each half of an operation: the call, written before it leaves, and the
answer. An operation without an answer, or with an error that does not say whether it happened, is *unknown*: it may
have happened. Times are CLOCK_MONOTONIC, which all processes of a machine share; a `clock` line ties it to wall time.

The fields of each kind, as lists to keep long campaigns small:

    send    topic, ids, producer, number, message_group → results [[queue, offset], …], duplicate, codes [0 or Code, …]
    pop     topic, group, attempt_id          → popped_ms, until_ms, replay,
                                                rows [[id, handle, attempt, queue, offset, body is intact], …]
    ack     group, handles                    → codes [0 or Code, …]
    settle  group, handles, topic, ids, producer, number → results [[queue, offset], …], duplicate
    change  group, changes [[handle, kind, milliseconds, uncounted], …] → results [[Code, visible_ms, dead], …]

reader.py and scratch.py list the fields of their kinds. A call that failed has code and details instead.

docs/contributing/histories.md describes the form in which a second judge reads them, and
docs/decisions/0066-a-second-judge.md why there is one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEVER = 2**63


@dataclass(slots=True)
class Operation:
    """A call and its outcome.

    `how`: ok, refused (nothing happened, for certain) or unknown. `asked`, `told`: the fields of the request and of the
    answer, as in the table above.
    """

    kind: str
    client: str
    called_ns: int
    asked: dict[str, Any]
    returned_ns: int = NEVER
    how: str = "unknown"
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if the call was answered without an error; entries of a batch may still have been refused."""
        return self.how == "ok"


class Recorder:
    """Writes the history of one client, for one thread.

    Each line is flushed, so a process that is killed leaves the call whose answer it had not seen.
    """

    def __init__(self, folder: Path, client: str) -> None:
        """Appends to FOLDER/CLIENT.jsonl, and begins with a `clock` line."""
        self.client = client
        self.last = ""  # the outcome of the last operation
        self._file = (folder / f"{client}.jsonl").open("a", buffering=1)
        self._write({"clock": time.time_ns() - time.monotonic_ns()})

    def called(self, kind: str, **asked: Any) -> None:
        """Writes the first half of an operation. Call it before the request leaves."""
        self._write({"kind": kind, "at": time.monotonic_ns(), "asked": asked})

    def returned(self, how: str, **told: Any) -> None:
        """Writes the second half of the last operation: its outcome (see `Operation.how`), and the answer."""
        self.last = how
        self._write({"how": how, "at": time.monotonic_ns(), "told": told})

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        """Writes one line of JSON."""
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


@dataclass
class History:
    """All calls of all clients, in order."""

    operations: list[Operation]
    wall_minus_monotonic_ns: int = 0

    def wall_ms(self, monotonic_ns: int) -> float:
        """A monotonic time in ns as milliseconds since 1970."""
        return (monotonic_ns + self.wall_minus_monotonic_ns) / 1e6

    def of(self, kind: str) -> Iterator[Operation]:
        """The operations of one kind, in the order of the calls."""
        return (operation for operation in self.operations if operation.kind == kind)


def read(folder: Path) -> History:
    """The histories of a folder as one."""
    operations: list[Operation] = []
    offset = 0
    for file in sorted(folder.glob("*.jsonl")):
        for line in map(json.loads, file.read_text().splitlines()):
            if "clock" in line:
                offset = line["clock"]
            elif "kind" in line:
                operations.append(Operation(line["kind"], file.stem, line["at"], line["asked"]))
            else:
                last = operations[-1]
                last.returned_ns, last.how, last.told = line["at"], line["how"], line["told"]
    return History(sorted(operations, key=lambda operation: operation.called_ns), offset)
