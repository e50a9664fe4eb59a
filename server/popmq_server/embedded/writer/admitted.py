"""Bounds the commands that wait for the writer, in number and in bytes, for each lane.

A writer that waits for its disk takes nothing from its queue, while calls keep arriving: beyond a bound they are
refused with BUSY, before they take all memory. Each lane has bounds of its own, so sends never keep out the acks, which
free leases and room.

For the event loop: what is admitted is counted until its answer has arrived there.
"""

from collections.abc import Iterable
from typing import Protocol

from popmq_server.contract.commands import Settle
from popmq_server.contract.operations import Operation
from popmq_server.errors import Refused

#: Bytes that may wait in one lane, by the estimate of `bytes_of`.
ADMITTED_BYTES_MAX = 256 << 20
#: Commands that may wait in one lane: as many as may be parked (waiters.WAITERS_MAX), and each takes as much memory.
ADMITTED_COMMANDS_MAX = 100_000
#: Bytes of a command, and of one of its entries besides its texts: tuples, handles of some 100 characters.
COMMAND_BYTES, ENTRY_BYTES = 1024, 256


class Counted(Protocol):
    """A command that was counted in, with the bytes that `admit` or `enter` returned."""

    @property
    def command(self) -> Operation[object]: ...

    @property
    def bytes(self) -> int: ...


def bytes_of(command: Operation[object]) -> int:
    """Estimates the memory of a waiting command from its number of entries and the `bytes` that it tells."""
    size: int = COMMAND_BYTES + getattr(command, "bytes", 0)
    for entries in command.entries_fields:
        size += ENTRY_BYTES * len(getattr(command, entries) or ())
    if isinstance(command, Settle):
        size += sum(map(bytes_of, command.sends))
    return size


class Admitted:
    """Counts the commands that are admitted and not answered yet, by lane."""

    def __init__(self) -> None:
        self._bytes, self._commands = [0, 0, 0], [0, 0, 0]

    def admit(self, command: Operation[object]) -> int:
        """Counts a command in, unless a bound is reached: then raises Refused. Returns its bytes, for `leave`."""
        lane, size = command.lane, bytes_of(command)
        if self._bytes[lane] + size > ADMITTED_BYTES_MAX or self._commands[lane] >= ADMITTED_COMMANDS_MAX:
            raise self._busy(lane)
        self._bytes[lane] += size
        self._commands[lane] += 1
        return size

    def enter(self, command: Operation[object]) -> int:
        """Counts in a command that goes on with a call that was admitted before: it is not refused midway."""
        lane, size = command.lane, bytes_of(command)
        self._bytes[lane] += size
        self._commands[lane] += 1
        return size

    def leave(self, answered: Iterable[Counted]) -> None:
        """Counts out the commands of a commit batch."""
        for one in answered:
            lane = one.command.lane
            self._bytes[lane] -= one.bytes
            self._commands[lane] -= 1

    def _busy(self, lane: int) -> Refused:
        return Refused(
            "BUSY",
            f"{self._commands[lane]:,} requests of {self._bytes[lane] >> 20} MiB wait already",
            retry_after_ms=100,
            action="retry with backoff",
        )
