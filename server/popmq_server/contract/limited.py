"""An engine without some capabilities: refuses what needs them before it reaches the engine.

protocols/ ─▶ Guarded ─▶ limited(engine) ─▶ engine        UNSUPPORTED, with what to use instead (capabilities.py)
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

from popmq_server.contract.capabilities import NEEDED, needed, unsupported
from popmq_server.contract.commands import Pop, Popped
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.commands.queries import A, Query
from popmq_server.contract.commands.store import Piece
from popmq_server.contract.core import Core
from popmq_server.contract.engine import Engine


def limited(engine: Core) -> Engine:
    """The engine itself if it lacks no capability, else a wrapper that refuses calls that need a missing one."""
    return cast(Engine, _Limited(engine) if engine.info().lacking else engine)


class _Limited:
    """Passes all other methods to the engine. The engine may lack the methods of a capability that it does not have."""

    def __init__(self, engine: Core) -> None:
        self._engine = cast(Engine, engine)  # a method that it lacks is refused, and never called
        self._info: EngineInfo = engine.info()

    def __getattr__(self, method: str) -> Any:
        name = NEEDED.get(method, "")
        return self._refusing(name) if name in self._info.lacking else getattr(self._engine, method)

    def _refusing(self, name: str) -> Callable[..., Any]:
        async def refuse(*_: Any, **__: Any) -> Any:
            raise unsupported(name, self._info.engine)

        return refuse

    def _check(self, asked: Any) -> None:
        if (name := needed(asked)) in self._info.lacking:
            raise unsupported(name, self._info.engine)

    async def execute(self, command: Any) -> Any:
        """Raises Refused UNSUPPORTED for a command that needs a missing capability."""
        self._check(command)
        return await self._engine.execute(command)

    async def ask(self, query: Query[A]) -> A:
        """Raises Refused UNSUPPORTED for a query that needs a missing capability."""
        self._check(query)
        return await self._engine.ask(query)

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Raises Refused UNSUPPORTED for a token or lite topics if the engine lacks them."""
        self._check(command)
        return await self._engine.pop(command, wait_ms)

    async def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """Raises Refused UNSUPPORTED when the first piece is taken."""
        if "backup" in self._info.lacking:
            raise unsupported("backup", self._info.engine)
        async for piece in self._engine.backup(bytes_per_s):
            yield piece
