"""Finds the descendants of a process, for tests and the demo, which kill some of them."""

from pathlib import Path


def descendants(pid: int, text: bytes) -> list[int]:
    """Ids of all descendants of `pid` whose command line contains `text`. Only on Linux."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").glob("[0-9]*")}
    found, below = [], {pid}
    while below := {child for child, parent in parents.items() if parent in below}:
        found += [child for child in below if text in _command_line(child)]
    return sorted(found)


def _parent(entry: Path) -> int:
    """The id of its parent; 0 if it has ended meanwhile."""
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
