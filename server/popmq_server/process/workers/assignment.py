"""What a worker gets from its supervisor, over its standard input, which stays open as long as the supervisor lives."""

import pickle
from typing import BinaryIO, NamedTuple

from popmq_server.options import Options
from popmq_server.settings import Settings

#: What a worker says on its standard output when it serves.
READY = b"ready\n"


class Assignment(NamedTuple):
    """`options`: what it serves; its metrics port is for the supervisor only. `files`: numbers of sockets, by port.

    `argv`, `settings`: what SIGHUP compares with.
    """

    number: int
    options: Options
    files: dict[int, list[int]]
    argv: list[str] | None
    settings: Settings


def written(assignment: Assignment) -> bytes:
    """As `read` takes it: the length in 8 bytes, then a pickle."""
    content = pickle.dumps(assignment)
    return len(content).to_bytes(8, "big") + content


def read(stream: BinaryIO) -> Assignment:
    """Waits for an assignment, and for nothing behind it. Raises EOFError: the supervisor has gone."""
    length = int.from_bytes(stream.read(8), "big")
    found = pickle.loads(stream.read(length))  # of the process that has started this one
    assert isinstance(found, Assignment)
    return found
