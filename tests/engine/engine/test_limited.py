"""Capabilities: what an engine lacks is refused with what to use instead, and the rest is not touched."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.capabilities import CAPABILITIES
from popmq_server.contract.commands import EveryOperation, queries
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.engine import Engine
from popmq_server.contract.limited import limited
from popmq_server.contract.operations import Operation, Query
from popmq_server.errors import Refused

#: What every engine serves.
EVERY = {
    *(ask.Send, ask.Pop, ask.Ack, ask.ChangeInvisibleTime, ask.RenewSession, ask.ReleaseSession),
    *(ask.CreateTopic, ask.UpdateTopic, ask.DeleteTopic, ask.CreateGroup, ask.UpdateGroup, ask.DeleteGroup),
    *(ask.Heartbeat, ask.AssignmentOf, ask.Clients),
    *(queries.Topics, queries.Groups, queries.GroupSettings, queries.HeldBy, queries.Subscriptions),
    *(queries.StoreSize, queries.SessionHandle),
}
OPERATIONS: tuple[type[Operation[object]], ...] = get_args(EveryOperation)
#: The methods of Engine that need a capability, beside the operations.
METHODS: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "pull": lambda engine: engine.pull(ask.Pull("t", "g", 0, 0), 0),
    "wait_available": lambda engine: engine.wait_available(ask.Available("t", "g"), 1, 0),
    "transactions": lambda engine: engine.join("client", ()),
    "backup": lambda engine: pieces(engine),
}


class Tiny:
    """An engine that notes what reaches it."""

    def __init__(self, *lacking: str) -> None:
        self.lacking = frozenset(lacking)
        self.asked: list[Any] = []

    def info(self) -> EngineInfo:
        return EngineInfo("tiny", self.lacking)

    async def execute(self, command: Any) -> Any:
        self.asked.append(command)

    async def pop(self, command: ask.Pop, wait_ms: int) -> Any:
        self.asked.append(command)

    ask = execute


def tiny(*lacking: str) -> tuple[Tiny, Engine]:
    engine: Any = Tiny(*lacking)
    return engine, limited(engine)


async def pieces(engine: Engine) -> list[object]:
    return [piece async for piece in engine.backup(1)]


def made(kind: type[Operation[object]]) -> Any:
    """One with arbitrary fields."""
    return kind(**dict.fromkeys(kind.__dataclass_fields__, None))  # type: ignore[attr-defined]


def test_every_command_and_query_is_served_by_all_engines_or_belongs_to_a_capability() -> None:
    assert {kind for kind in OPERATIONS if kind.capability is None} == EVERY
    named = {kind.capability.name for kind in OPERATIONS if kind.capability is not None}
    assert named | METHODS.keys() == CAPABILITIES.keys()


def test_an_engine_that_lacks_nothing_is_not_wrapped() -> None:
    engine, seen = tiny()
    assert seen is engine  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("name", CAPABILITIES)
async def test_a_capability_that_the_engine_lacks_is_refused_with_an_alternative(name: str) -> None:
    engine, seen = tiny(name)
    needing = [kind for kind in OPERATIONS if kind.capability is CAPABILITIES[name]]
    calls = [seen.ask(made(kind)) if issubclass(kind, Query) else seen.execute(made(kind)) for kind in needing]
    for call in (*calls, *([METHODS[name](seen)] if name in METHODS else [])):
        with pytest.raises(Refused) as error:
            await call
        assert (error.value.code, error.value.action) == ("UNSUPPORTED", CAPABILITIES[name].instead)
        assert "'tiny'" in error.value.message
    assert engine.asked == []


async def test_calls_of_capabilities_that_the_engine_has_reach_it() -> None:
    engine, seen = tiny("owners", "lite")
    ack, query, plain = ask.Ack("g", ("h",)), queries.Topics(), ask.Pop("t", "g")
    lock = ask.LockQueues("t", "g", "c", ())
    await seen.execute(ack)
    await seen.ask(query)
    await seen.pop(plain, 0)
    await seen.execute(lock)
    assert engine.asked == [ack, query, plain, lock]
    token = ask.PopToken("o", 1, 1, 0, 0, 0, None)
    for missing in (replace(plain, token=token), replace(plain, lite=())):
        with pytest.raises(Refused, match="tiny"):
            await seen.pop(missing, 0)
    assert len(engine.asked) == 4
    assert plain.needed() is None
