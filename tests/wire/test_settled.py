"""What `popmq serve` does once it is ready, before it serves."""

from __future__ import annotations

import asyncio
import gc
import pathlib
from types import TracebackType
from typing import Any

import pytest

from popmq_server import __main__ as program
from popmq_server.errors import CommitFailed
from popmq_server.settings import parse


class Failing:
    """Serves nothing: its first commit has failed already."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.port, self.certificate, self.left_out = 0, None, list[Any]()
        self.broker = self
        self.failed = asyncio.get_running_loop().create_future()
        self.failed.set_result(CommitFailed("no disk"))

    async def __aenter__(self) -> Failing:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    async def alive(self) -> bool:
        return True


def test_a_full_collection_of_garbage_does_not_walk_over_what_the_start_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(program, "Serving", Failing)
    try:
        assert asyncio.run(program._serve([], parse(["--data", str(tmp_path)]))) == program.EXIT_IO
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
