"""Capabilities: what an engine lacks is refused with what to use instead, and the rest is not touched."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.capabilities import CAPABILITIES
from popmq_server.contract.commands import EveryOperation, NewMessage, queries
from popmq_server.contract.commands.catalog import BY_SETTING
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.engine import Engine
from popmq_server.contract.limited import limited
from popmq_server.contract.operations import Command, Operation, Query
from popmq_server.errors import Refused
from popmq_server.values.message import Extra
from popmq_server.values.records import FairKeys

#: What every engine serves.
EVERY = {
    *(ask.Send, ask.Pop, ask.Ack, ask.ChangeInvisibleTime, ask.RenewSession, ask.ReleaseSession),
    *(ask.CreateTopic, ask.UpdateTopic, ask.DeleteTopic, ask.CreateGroup, ask.UpdateGroup, ask.DeleteGroup),
    *(ask.Heartbeat, ask.AssignmentOf, ask.AskClient, ask.Clients),
    *(queries.Topics, queries.Groups, queries.GroupSettings, queries.HeldBy, queries.Subscriptions),
    *(queries.StoreSize, queries.SessionHandle, queries.Brokers),
}
OPERATIONS: tuple[type[Operation[object]], ...] = get_args(EveryOperation)
#: The methods of Engine that need a capability, beside the operations.
METHODS: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "pull": lambda engine: engine.pull(ask.Pull("t", "g", 0, 0), 0),
    "wait_available": lambda engine: engine.wait_available(ask.Available("t", "g"), 1, 0),
    "transactions": lambda engine: engine.join("client", ()),
    "backup": lambda engine: pieces(engine),
}


TOPIC, GROUP = ask.CreateTopic("t", 1, False, None), ask.CreateGroup("g", 1, (1,), 1, 0, "EARLIEST", 0, False)
#: Commands that ask for a setting that an engine may lack.
SETTINGS: dict[str, tuple[Command[object], ...]] = {
    "unique_ids": (replace(TOPIC, unique_ids_ms=1), ask.UpdateTopic("t", 0, None, (("unique_ids_ms", 1),))),
    "quotas": (
        replace(TOPIC, send_messages_per_s=1),
        replace(TOPIC, send_bytes_per_s=1),
        replace(TOPIC, message_bytes_max=1),
        ask.UpdateTopic("t", 0, None, (("pop_messages_per_s", 1),)),
    ),
    "retention": (
        replace(TOPIC, keep_ms=1),
        replace(TOPIC, bytes_max=1),
        ask.UpdateTopic("t", 0, (False, 1)),
        ask.UpdateTopic("t", 0, None, (("bytes_max", 1),)),
    ),
    "in_flight_max": (replace(GROUP, in_flight_max=1), ask.UpdateGroup("g", {"in_flight_max": 1})),
    "stop_on_failure": (replace(GROUP, stop_on_failure=True), ask.UpdateGroup("g", {"stop_on_failure": True})),
    "exclusive_owner": (replace(GROUP, exclusive_owner=True), ask.UpdateGroup("g", {"exclusive_owner": True})),
    "results": (
        replace(GROUP, results_keep_ms=60_000),
        ask.UpdateGroup("g", {"results_keep_ms": 60_000}),
    ),
    "subscription_expiry": (
        replace(GROUP, subscription_expiry_ms=1),
        ask.UpdateGroup("g", {"subscription_expiry_ms": 1}),
    ),
    "ttl": (
        replace(GROUP, dead_letter_expired=True),
        ask.UpdateGroup("g", {"dead_letter_expired": True}),
        ask.Send("t", (NewMessage(b"", "", "a", extra=Extra(ttl_ms=1)),)),
    ),
    "snooze": (replace(GROUP, snoozes_max=1), ask.UpdateGroup("g", {"snoozes_max": 1})),
    "fair_keys": (
        replace(GROUP, fair_keys=FairKeys("key")),
        ask.UpdateGroup("g", {"fair_keys": FairKeys("key")}),
    ),
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
    assert named | METHODS.keys() | SETTINGS.keys() == CAPABILITIES.keys()
    assert {each.name for each in BY_SETTING.values()} == SETTINGS.keys()


def test_an_engine_that_lacks_nothing_is_not_wrapped() -> None:
    engine, seen = tiny()
    assert seen is engine  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("name", CAPABILITIES)
async def test_a_capability_that_the_engine_lacks_is_refused_with_an_alternative(name: str) -> None:
    engine, seen = tiny(name)
    needing = [kind for kind in OPERATIONS if kind.capability is CAPABILITIES[name]]
    calls = [seen.ask(made(kind)) if issubclass(kind, Query) else seen.execute(made(kind)) for kind in needing]
    calls += [seen.execute(command) for command in SETTINGS.get(name, ())]
    assert calls or name in METHODS
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
    assert plain.needed() == ()


async def test_settings_that_a_request_leaves_unset_reach_an_engine_that_lacks_them_all() -> None:
    engine, seen = tiny(*SETTINGS)
    updates = ask.UpdateTopic("t", 2, None, (("unique_ids_ms", 0),)), ask.UpdateGroup("g", vars(GROUP))
    never = replace(GROUP, subscription_expiry_ms=0)
    for command in (TOPIC, GROUP, *updates, never):
        await seen.execute(command)
    assert engine.asked == [TOPIC, GROUP, *updates, never]


async def test_a_command_needs_each_capability_of_its_settings() -> None:
    asked = replace(TOPIC, type="LITE", unique_ids_ms=1, message_bytes_max=1)
    assert [each.name for each in asked.needed()] == ["lite", "unique_ids", "quotas"]
    _, seen = tiny("quotas")
    with pytest.raises(Refused, match="limits of a topic's rates"):
        await seen.execute(asked)
