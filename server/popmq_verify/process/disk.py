"""Replays the log of the shim (shim.c) to make the files that a power cut would leave.

The model: a write is on the disk once a later sync of its file has returned, or at once if its descriptor had O_DSYNC.
At a cut every 512-byte sector of every unsynced write is on the disk or not, at random and in any order; one sector is
never half written. The writes that were durable are there, whole.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RECORD = struct.Struct("<QQQQHBBI")
SECTOR = 512
# The share of unsynced writes that is on the disk after a cut: none, all, or some.
KEPT = (0.0, 0.1, 0.5, 0.9, 1.0)


@dataclass(slots=True)
class Event:
    """One call on one file; `data` are the bytes of a write."""

    start_ns: int
    end_ns: int
    kind: str  # New, Write, Truncate, Sync; see shim.c
    file: str
    durable: bool
    offset: int
    length: int
    data: bytes


def events(log: Path, folder: Path) -> Iterator[Event]:
    """The log in order, with file names relative to the folder that was watched."""
    names: dict[int, str] = {}  # a process numbers its files again, and says so with N
    content, at = memoryview(log.read_bytes()), 0
    while at < len(content):
        start, end, offset, length, file, kind, durable, _ = RECORD.unpack_from(content, at)
        at += RECORD.size
        data = bytes(content[at : at + length]) if chr(kind) in "NWRU" else b""
        at += len(data)
        assert chr(kind) in "NWTS", f"the model knows no {chr(kind)} of {data!r}: a map, a rename or a removal"
        if chr(kind) == "N":
            names[file] = str(Path(data.decode()).relative_to(folder))
        yield Event(start, end, chr(kind), names[file], bool(durable), offset, length, data)


class Disk:
    """The files of the folder as a power cut would leave them; `broken` ignores syncs (to prove the tests can fail)."""

    def __init__(self, broken: bool = False) -> None:
        """An empty folder. `_synced`: the files as of their last sync; `_since`: the writes since then, in order."""
        self.broken = broken
        self._synced: dict[str, bytearray] = {}
        self._since: dict[str, list[Event]] = defaultdict(list)

    def play(self, event: Event) -> None:
        """One event that returned before the cut."""
        if event.kind == "N":
            if event.file != "." and event.file not in self._synced:
                self._synced[event.file] = bytearray()
        elif event.kind == "S" and not self.broken:
            for earlier in self._since.pop(event.file, []):
                _apply(self._synced[event.file], earlier)
        elif event.kind in "WT":
            self._since[event.file].append(event)

    def cached(self) -> Iterator[tuple[str, bytes]]:
        """The files as programs read them before the cut."""
        for name, synced in self._synced.items():
            file = bytearray(synced)
            for event in self._since[name]:
                _apply(file, event)
            yield name, bytes(file)

    def cut(self, folder: Path, chance: random.Random, running: Event | None = None) -> None:
        """Writes the files after a cut. `running` is the call during which it happened: part of it may be there too."""
        kept = chance.choice(KEPT)
        for name, synced in self._synced.items():
            file = bytearray(synced)
            for event in self._since[name]:
                _apply(file, event, chance, 1.0 if event.durable and not self.broken else kept)
            if running and running.file == name and running.kind in "WT":
                _apply(file, running, chance, kept)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(file)


def _apply(file: bytearray, event: Event, chance: random.Random | None = None, kept: float = 1.0) -> None:
    """Applies a write to a file, or the sectors of it that chance leaves."""
    whole = chance is None or kept == 1.0
    if event.kind == "T":
        if whole or (chance and chance.random() < kept):
            _resize(file, event.length)
        return
    if whole:
        _put(file, event.offset, event.data)
        return
    start = event.offset
    while chance and start < event.offset + event.length:
        end = min((start // SECTOR + 1) * SECTOR, event.offset + event.length)
        if chance.random() < kept:
            _put(file, start, event.data[start - event.offset : end - event.offset])
        start = end


def _put(file: bytearray, offset: int, data: bytes) -> None:
    """Writes data at an offset; a gap before it is filled with zeros."""
    if len(file) < offset:
        _resize(file, offset)
    file[offset : offset + len(data)] = data


def _resize(file: bytearray, size: int) -> None:
    """Truncates a file, or extends it with zeros."""
    if size < len(file):
        del file[size:]
    else:
        file.extend(bytes(size - len(file)))
