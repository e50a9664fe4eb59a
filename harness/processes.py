"""Processes below a process, for tests and the demo that kill some of them."""

from __future__ import annotations

from pathlib import Path


def descendants(pid: int, text: bytes) -> list[int]:
    """Processes that `pid` started, and those that they started, whose command line has `text`. Only on Linux."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").glob("[0-9]*")}
    found, below = [], {pid}
    while below := {child for child, parent in parents.items() if parent in below}:
        found += [child for child in below if text in _command_line(child)]
    return sorted(found)


def _parent(entry: Path) -> int:
    """0 for a process that has ended meanwhile."""
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
