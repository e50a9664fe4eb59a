"""Capabilities: what an engine lacks is refused with what to use instead, and the rest is not touched."""

import inspect
from typing import Any, get_type_hints

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.capabilities import CAPABILITIES, NEEDED, limited, needed
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.engine import Engine
from popmq_server.errors import Refused
from popmq_server.protocols.access.needs import ASKING, NEEDS

#: What every engine serves.
EVERY = {
    *(ask.Send, ask.Pop, ask.Ack, ask.ChangeInvisibleTime, ask.RenewSession, ask.ReleaseSession),
    *(ask.CreateTopic, ask.UpdateTopic, ask.DeleteTopic, ask.CreateGroup, ask.UpdateGroup, ask.DeleteGroup),
    *(queries.Topics, queries.Groups, queries.GroupSettings, queries.TermsOf, queries.HeldBy, queries.Subscriptions),
    *(queries.Store, queries.SessionHandle),
}
#: The embedded engine's own.
OWN = {
    *(ask.Sweep, ask.CountChecks, ask.Attend, ask.Listen, ask.Trace, ask.FindDeadLetters),
    *(ask.PeekPiece, ask.LookUpPiece, ask.WhyPiece, ask.RedrivePiece, ask.DiscardPiece, queries.TopicNames),
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

    async def lock_queues(self, *asked: Any) -> Any:
        self.asked.append(asked)

    ask = execute


def tiny(*lacking: str) -> tuple[Tiny, Engine]:
    engine: Any = Tiny(*lacking)
    return engine, limited(engine)


async def call(engine: Engine, part: type | str) -> None:
    """Calls a command, a query or a method with arbitrary fields."""
    if part == "backup":
        _ = [piece async for piece in engine.backup(1)]
    elif isinstance(part, str):
        await getattr(engine, part)()
    else:
        asked: Any = part(**dict.fromkeys(get_type_hints(part), None))
        await (engine.ask(asked) if issubclass(part, queries.Query) else engine.execute(asked))


def test_every_command_and_query_is_served_by_all_engines_or_belongs_to_a_capability() -> None:
    parts = {part for part in NEEDED if isinstance(part, type)}
    assert parts | EVERY | OWN == {*NEEDS, *ASKING}
    assert not parts & (EVERY | OWN)
    assert sum(len(each.parts) for each in CAPABILITIES.values()) == len(NEEDED), "one part stands in two capabilities"


def test_methods_that_capabilities_name_are_methods_of_the_engine() -> None:
    methods = {part for part in NEEDED if isinstance(part, str)}
    assert all(inspect.isfunction(getattr(Engine, name)) for name in methods)
    assert methods >= {"pull", "backup", "join"}


def test_an_engine_that_lacks_nothing_is_not_wrapped() -> None:
    engine, seen = tiny()
    assert seen is engine  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("name", CAPABILITIES)
async def test_a_capability_that_the_engine_lacks_is_refused_with_an_alternative(name: str) -> None:
    engine, seen = tiny(name)
    for part in CAPABILITIES[name].parts:
        with pytest.raises(Refused) as error:
            await call(seen, part)
        assert (error.value.code, error.value.action) == ("UNSUPPORTED", CAPABILITIES[name].instead)
        assert "'tiny'" in error.value.message
    assert engine.asked == []


async def test_calls_of_capabilities_that_the_engine_has_reach_it() -> None:
    engine, seen = tiny("owners", "lite")
    ack, query, plain = ask.Ack("g", ("h",)), queries.Topics(), ask.Pop("t", "g")
    await seen.execute(ack)
    await seen.ask(query)
    await seen.pop(plain, 0)
    await seen.lock_queues("t", "g", "c", ())
    assert engine.asked == [ack, query, plain, ("t", "g", "c", ())]
    token = ask.PopToken("o", 1, 1, 0, 0, 0, None)
    for missing in (plain._replace(token=token), plain._replace(lite=())):
        with pytest.raises(Refused, match="tiny"):
            await seen.pop(missing, 0)
    assert len(engine.asked) == 4
    assert needed(plain) == ""
