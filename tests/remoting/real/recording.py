"""Keeps the answers of real brokers as they came: of each request and code the longest one.

With POPMQ_RECORD=FILE a run of the tests beside this file writes them. What was kept is in tests/remoting/codecs, and
test_recorded.py reads it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from popmq_remoting.connection.multiplexer import Done, Multiplexer
from popmq_remoting.wire.command import Command, Request
from popmq_remoting.wire.frames import CommandReader
from popmq_remoting.wire.header import BINARY

#: Larger answers are not kept: all settings of a broker have half of it.
BYTES_MAX = 64_000


@contextmanager
def recorded_to() -> Iterator[None]:
    """Writes the file at the end; nothing without the variable."""
    path = os.environ.get("POPMQ_RECORD")
    if not path:
        yield
        return
    asked: dict[tuple[int, int], int] = {}
    kept: dict[str, str] = {}
    plain_send, plain_command = Multiplexer.send, CommandReader._command

    def send(self: Multiplexer, request: Request, done: Done, held: int = 0) -> int:
        opaque = plain_send(self, request, done, held)
        asked[id(self._reader), opaque] = request.code
        return opaque

    def command(self: CommandReader, encoding: int, begin: int, middle: int, end: int) -> Command:
        found = plain_command(self, encoding, begin, middle, end)
        code = asked.get((id(self), found.opaque))
        name = f"{code} answered {found.code}" if found.is_answer else f"asked {found.code}"
        name = f"binary {name}" if encoding == BINARY else name
        raw = bytes(self._rest[begin - 8 : end])
        if len(kept.get(name, "")) // 2 < len(raw) < BYTES_MAX:
            kept[name] = raw.hex()
        return found

    with mock.patch.object(Multiplexer, "send", send), mock.patch.object(CommandReader, "_command", command):
        yield
    Path(path).write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
