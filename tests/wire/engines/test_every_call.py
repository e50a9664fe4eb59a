"""Each method of both protocols, and each command and query, on each engine: served, or refused as lacking.

Over the wire go the good requests of world.py; what they do not bring to an engine is asked of it directly. A call is
served when it is answered, or refused by a rule: with a code that is neither UNSUPPORTED nor INTERNAL.
"""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, get_args

import grpc
import pytest

from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.rocketmq import service_pb2 as v2rpc
from popmq_server.contract import commands as do
from popmq_server.contract.capabilities import CAPABILITIES
from popmq_server.contract.commands import EveryOperation, queries
from popmq_server.contract.engine import Engine
from popmq_server.contract.limited import limited
from popmq_server.contract.operations import Command, Operation, Query
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import Refused
from tests.wire.rocketmq.v2 import V2, message, resource
from tests.wire.served import Served
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, read_refusal
from tests.wire.world import (
    FEED,
    LATER,
    LEDGER,
    METHODS,
    OTHER_GROUP,
    OTHER_TOPIC,
    READERS,
    World,
    good_requests,
    method,
)

#: Those that no method of popmq.v1 runs, and those that need another key or what the world lacks.
DIRECTLY: tuple[Operation[object], ...] = (
    do.RenewSession("c"),
    do.ReleaseSession("c"),
    queries.SessionHandle("c", GROUP, "m"),
    queries.HeldBy((("c", GROUP),)),
    queries.Subscriptions(GROUP),
    queries.StoreSize(),
    do.TopicsOf(("id",)),
    do.SyncLite(TOPIC, GROUP, "c", "COMPLETE_ADD", ("x",)),
    do.Search(TOPIC, True, "", 1, 1 << 20),
)
NO_WORLD: Any = None


def ended(call: Any, request: Any) -> tuple[str, str]:
    """(OK or the code, the action) of a call over the wire."""
    try:
        call(request, timeout=CALL_S)
    except grpc.RpcError as error:
        found = read_refusal(error)
        return found.code, found.info.action
    return "OK", ""


async def answered(call: Coroutine[Any, Any, object]) -> tuple[str, str]:
    """The same of a call of the engine."""
    try:
        await call
    except Refused as refused:
        return refused.code, refused.action
    return "OK", ""


async def methods_of(engine: Engine) -> dict[str, tuple[str, str]]:
    """What ends the methods of Engine that are no commands."""

    async def produce() -> None:
        stream = await engine.join("client", (LATER,))
        stream.end()
        assert [check async for check in stream] == []
        stream.close()

    async def copy() -> None:
        async for _ in engine.backup(1 << 30):
            break

    pop, pull, wait = do.Pop(TOPIC, GROUP), do.Pull(FEED, READERS, 0, 0), do.Available(TOPIC, GROUP)
    return {
        "pop": await answered(engine.pop(pop, 0)),
        "pull": await answered(engine.pull(pull, 0)),
        "wait_available": await answered(engine.wait_available(wait, 1, 0)),
        "transactions": await answered(produce()),
        "backup": await answered(copy()),
    }


def asked(engine: Engine, operation: Operation[object]) -> Coroutine[Any, Any, object]:
    if isinstance(operation, Query):
        return engine.ask(operation)
    assert isinstance(operation, Command)
    return engine.execute(operation)


def engine_of(every: EmbeddedBroker | Served) -> Engine:
    """What protocols/ serves."""
    life: Any = every.serving.life
    return limited(life.engine)


def loop_of(every: EmbeddedBroker | Served) -> asyncio.AbstractEventLoop:
    return every.loop if isinstance(every, Served) else every._loop


def names(stubs: Stubs) -> None:
    """The topics and groups of the world, without what an engine may lack."""
    for topic in (TOPIC, OTHER_TOPIC, LATER, LEDGER, FEED):
        stubs.create_topic(topic)
    for group in (GROUP, OTHER_GROUP, READERS):
        stubs.create_group(group)


@pytest.fixture(params=["broker", "second", "gateway"], ids=["embedded", "stub", "rocketmq"])
def every(request: pytest.FixtureRequest) -> EmbeddedBroker | Served:
    found: EmbeddedBroker | Served = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def noted(every: EmbeddedBroker | Served, monkeypatch: pytest.MonkeyPatch) -> set[type[Operation[object]]]:
    """The classes of operations that the protocols ask of the engine, or of the wrapper that refuses in its place."""
    kinds: set[type[Operation[object]]] = set()
    seen = type(engine_of(every))
    for name in ("execute", "ask", "pop", "pull", "wait_available"):
        run = getattr(seen, name)

        def noting(engine: Engine, operation: Operation[object], *more: int, run: Any = run) -> Any:
            kinds.add(type(operation))
            return run(engine, operation, *more)

        monkeypatch.setattr(seen, name, noting)
    return kinds


def test_each_call_is_served_or_refused_as_lacking_with_what_to_do(
    every: EmbeddedBroker | Served, noted: set[type[Operation[object]]]
) -> None:
    whole = engine_of(every)
    lacking = whole.info().lacking
    with Stubs(every.endpoint) as stubs:
        names(stubs)
        wire = good_requests(World(NO_WORLD, NO_WORLD, NO_WORLD, 1, "handle", {}, "recall", "transaction", 1))
        ends = {name: ended(method(stubs, name), wire[name]) for name in METHODS}

    async def inside() -> dict[str, tuple[str, str]]:
        direct = {type(one).__name__: await answered(asked(whole, one)) for one in DIRECTLY}
        methods = await methods_of(whole)
        for name, (code, _) in methods.items():
            assert (code == "UNSUPPORTED") == (name in lacking), name
        return direct | methods

    direct = asyncio.run_coroutine_threadsafe(inside(), loop_of(every)).result(CALL_S)
    for one in DIRECTLY:
        lacks = any(each.name in lacking for each in one.needed())
        assert (direct[type(one).__name__][0] == "UNSUPPORTED") == lacks, one
    ends |= direct
    assert {name for name, (code, _) in ends.items() if code == "INTERNAL"} == set()
    assert {name for name, (code, action) in ends.items() if code == "UNSUPPORTED" and not action} == set()
    unsupported = {name for name, (code, _) in ends.items() if code == "UNSUPPORTED"}
    assert unsupported if lacking else not unsupported
    assert set(get_args(EveryOperation)) - noted == set(), "each was asked for"


def requests_of_v2() -> dict[str, dict[str, Any]]:
    """A request for each method of apache.rocketmq.v2 that has one answer."""
    topic, group = resource(TOPIC), resource(GROUP)
    both, queue = {"topic": topic, "group": group}, v2pb.MessageQueue(topic=topic, id=0)
    delivery = {"receipt_handle": "handle", "message_id": "m"}
    return {
        "QueryRoute": {"topic": topic, "endpoints": v2pb.Endpoints()},
        "Heartbeat": {"group": group, "client_type": v2pb.PUSH_CONSUMER},
        "SendMessage": {"messages": [message(b"a")]},
        "QueryAssignment": both | {"endpoints": v2pb.Endpoints()},
        "AckMessage": both | {"entries": [v2rpc.AckMessageEntry(**delivery)]},
        "ForwardMessageToDeadLetterQueue": both | delivery,
        "UpdateOffset": {"group": group, "message_queue": queue, "offset": 0},
        "GetOffset": {"group": group, "message_queue": queue},
        "QueryOffset": {"message_queue": queue, "query_offset_policy": v2pb.END},
        "EndTransaction": {"topic": topic, "transaction_id": "t", "message_id": "m", "resolution": v2pb.COMMIT},
        "ChangeInvisibleDuration": both | delivery | {"invisible_duration": timedelta(seconds=60)},
        "RecallMessage": {"topic": topic, "recall_handle": "handle"},
        "SyncLiteSubscription": both | {"action": v2pb.COMPLETE_ADD, "lite_topic_set": ["x"]},
        "NotifyClientTermination": {"group": group},
    }


def test_each_call_of_an_official_client_is_served_or_refused_as_lacking_with_what_to_do(
    every: EmbeddedBroker | Served,
) -> None:
    known = v2rpc.DESCRIPTOR.services_by_name["MessagingService"].methods
    requests = requests_of_v2()
    assert requests.keys() == {one.name for one in known if not one.client_streaming and not one.server_streaming}
    with Stubs(every.endpoint) as stubs, V2(every.endpoint) as client:
        names(stubs)
        ends = {name: client.call(name, **fields).status for name, fields in requests.items()}
    lacking = {name: end.message for name, end in ends.items() if end.code == v2pb.NOT_IMPLEMENTED}
    assert {name for name, end in ends.items() if end.code == v2pb.INTERNAL_SERVER_ERROR} == set()
    if engine_of(every).info().lacking:
        needs = {"EndTransaction": "transactions", "GetOffset": "pull", "SyncLiteSubscription": "lite"}
        missing = {name for name, capability in needs.items() if capability in engine_of(every).info().lacking}
        assert missing <= lacking.keys()
        actions = [each.instead for each in CAPABILITIES.values()]
        assert [message for message in lacking.values() if not any(action in message for action in actions)] == []
    else:
        assert lacking == {}
