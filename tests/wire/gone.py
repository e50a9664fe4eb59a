"""Tells a test when the broker has noticed that a caller disconnected, which no answer shows."""

import asyncio
from typing import Any

import pytest

from popmq_server.embedded.loop.broker import EmbeddedEngine
from tests.wire.parked import Parked


class Gone:
    """Counts the calls of EmbeddedEngine that ended by cancellation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._counted = Parked()
        for name in ("pop", "execute"):
            monkeypatch.setattr(EmbeddedEngine, name, self._watched(getattr(EmbeddedEngine, name)))

    def _watched(self, method: Any) -> Any:
        async def watched(*arguments: Any) -> Any:
            try:
                return await method(*arguments)
            except asyncio.CancelledError:
                # One turn of the loop later, when the cancellation has been processed.
                asyncio.get_running_loop().call_soon(self._counted.add)
                raise

        return watched

    def wait_for(self, count: int) -> None:
        self._counted.wait_for(count)
