"""An engine that lacks capabilities, behind the complete interface: what needs one is refused before it reaches it.

protocols/ ─▶ Guarded ─▶ limited(engine) ─▶ engine        UNSUPPORTED, with what to use instead
"""

from collections.abc import AsyncGenerator
from typing import cast

from popmq_server.contract.capabilities import BACKUP, PULL, TRANSACTIONS, WAIT_AVAILABLE, Capability
from popmq_server.contract.commands import Available, Pop, Popped, Pull, Pulled, Ready
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.commands.store import Piece
from popmq_server.contract.engine import BasicEngine, Engine, ProducerStream
from popmq_server.contract.operations import A, Command, Query
from popmq_server.errors import Refused


def unsupported(missing: Capability, engine: str) -> Refused:
    """The refusal of what needs a missing capability."""
    return Refused("UNSUPPORTED", f"the engine {engine!r} has no {missing.what}", action=missing.instead)


def limited(engine: BasicEngine) -> Engine:
    """The engine itself if it lacks no capability, else a wrapper that refuses calls that need a missing one."""
    return _Limited(engine) if engine.info().lacking else cast(Engine, engine)


class _Limited:
    """The engine may lack the methods of a capability that it does not have. Methods raise Refused UNSUPPORTED."""

    def __init__(self, engine: BasicEngine) -> None:
        self._engine = cast(Engine, engine)  # a method that it lacks is refused, and never called

    def _check(self, *needed: Capability) -> None:
        info = self.info()
        for each in needed:
            if each.name in info.lacking:
                raise unsupported(each, info.engine)

    def info(self) -> EngineInfo:
        """An engine may learn later that it lacks more."""
        return self._engine.info()

    async def execute(self, command: Command[A]) -> A:
        self._check(*command.needed())
        return await self._engine.execute(command)

    async def ask(self, query: Query[A]) -> A:
        self._check(*query.needed())
        return await self._engine.ask(query)

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Refuses a Pop with a token or lite topics if the engine lacks them."""
        self._check(*command.needed())
        return await self._engine.pop(command, wait_ms)

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        self._check(PULL)
        return await self._engine.pull(command, wait_ms)

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Ready:
        self._check(WAIT_AVAILABLE)
        return await self._engine.wait_available(command, min_ready, wait_ms)

    async def join(self, client: str, topics: tuple[str, ...]) -> ProducerStream:
        self._check(TRANSACTIONS)
        return await self._engine.join(client, topics)

    async def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """Refuses when the first piece is taken."""
        self._check(BACKUP)
        async for piece in self._engine.backup(bytes_per_s):
            yield piece
