"""Bad and good requests in one commit: the good ones are done as if they were alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract.commands import Send, UpdateTopic
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import lmdb as storage
from popmq_server.embedded.store.journal.changes import JournaledTransaction
from popmq_server.embedded.writer import core
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire import world as worlds
from tests.wire.gate import Gate
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, codes, read_refusal
from tests.wire.world import OTHER_GROUP, OWNER, World, token


def good(world: World) -> list[tuple[Any, Any]]:
    """Calls that succeed, of every lane of the writer."""
    stubs = world.stubs
    change = pb.InvisibleTimeChange(handle=world.live, extend=pb.Extend(invisible_ms=60_000))
    return [
        (stubs.broker.Send, pb.SendRequest(topic=TOPIC, messages=[pb.Message(message_id="new", body=b"new")])),
        (stubs.broker.Pop, pb.PopRequest(topic=TOPIC, group=OTHER_GROUP, max_messages=4096)),
        (stubs.broker.ChangeInvisibleTime, pb.ChangeInvisibleTimeRequest(group=GROUP, changes=[change])),
        (stubs.admin.CreateTopic, pb.CreateTopicRequest(topic=pb.Topic(name="new"))),
        (stubs.broker.AttachOwner, pb.AttachOwnerRequest(group=GROUP, owner="new", lease_ms=60_000)),
        (stubs.admin.ListLeases, pb.ListLeasesRequest()),
    ]


def bad(world: World) -> list[tuple[Any, Any, str]]:
    """Calls that only the engine can refuse, since it takes its state to know."""
    stubs, message = world.stubs, pb.Message(body=b"bad")
    stale = pb.AckUpToRequest(group=GROUP, owner=OWNER, generation=1, epoch=9)
    over = pb.PopRequest(topic=TOPIC, group=GROUP, token=token(world, epoch=1))
    narrow = pb.UpdateTopicRequest(topic=pb.Topic(name="flights", queues=1))
    other = pb.CreateGroupRequest(group=pb.Group(name=GROUP, max_attempts=2))
    return [
        (stubs.broker.Send, pb.SendRequest(topic="nobody", messages=[message]), "TOPIC_NOT_FOUND"),
        (stubs.broker.Pop, pb.PopRequest(topic=TOPIC, group="nobody"), "GROUP_NOT_FOUND"),
        (stubs.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, queues=[7]), "INVALID_FIELD"),
        (stubs.broker.Pop, over, "EPOCH_ALREADY_ACKED"),
        (stubs.broker.AckUpTo, stale, "FENCED"),
        (stubs.admin.UpdateTopic, narrow, "INVALID_FIELD"),
        (stubs.admin.CreateGroup, other, "ALREADY_EXISTS"),
        (stubs.admin.DeleteTopic, pb.DeleteTopicRequest(name="nobody"), "TOPIC_NOT_FOUND"),
        (stubs.broker.Ack, pb.AckRequest(group="nobody", handles=[world.live]), "GROUP_NOT_FOUND"),
    ]


def together(gate: Gate, stubs: Stubs, calls: list[tuple[Any, Any]]) -> list[Any]:
    """Makes calls that share one commit; grpc Futures that are done."""
    with gate.closed():
        first = stubs.admin.ListTopics.future(pb.ListTopicsRequest(), timeout=CALL_S)
        gate.wait_for(1)
        made = [call.future(request, timeout=CALL_S) for call, request in calls]
        gate.wait_for(1 + len(calls))
    first.result()
    for call in made:
        call.exception()
    sizes = [len(group) for group in gate.groups if group]  # a batch of due jobs alone has no command
    assert sizes[:2] == [1, len(calls)] or sizes[0] == 1 + len(calls)
    return made


def plain(answer: Any) -> Any:
    """An answer without its random parts."""
    copy = type(answer)()
    copy.CopyFrom(answer)
    for delivery in getattr(copy, "deliveries", ()):
        delivery.ClearField("handle")
    return copy


@pytest.fixture
def world(stubs: Stubs, folder: Path, clock: FakeClock) -> World:
    return worlds.build(stubs, folder, clock)


def alone(tmp_path: Path) -> list[Any]:
    """What the good calls answer without bad ones beside them."""
    clock = FakeClock()
    with EmbeddedBroker(tmp_path / "alone", clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        world = worlds.build(stubs, tmp_path / "alone", clock)
        return [plain(call(request, timeout=CALL_S)) for call, request in good(world)]


def test_bad_requests_in_one_commit_with_good_ones_harm_none(world: World, gate: Gate) -> None:
    goods, bads = good(world), bad(world)
    calls = [pair for both in zip(goods, bads, strict=False) for pair in (both[0], both[1][:2])]
    calls += [entry[:2] for entry in bads[len(goods) :]]
    made = together(gate, world.stubs, calls)
    refused = [call for call in made if call.exception() is not None]
    assert sorted(read_refusal(call).code for call in refused) == sorted(code for _, _, code in bads)
    answers = {type(call.result()).__name__: call.result() for call in made if call.exception() is None}
    assert codes(answers["SendResponse"].results) == codes(answers["ChangeInvisibleTimeResponse"].results) == [""]
    popped = bodies(answers["PopResponse"])
    assert popped[-1] == b"new", "a pop sees what was sent in its own commit"
    assert b"bad" not in popped


@pytest.mark.parametrize("lane", ["Send", "UpdateTopic"])
def test_a_request_on_which_the_broker_fails_is_answered_internal_and_its_neighbours_are_served(
    world: World, gate: Gate, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    """A bug in one handler, after it has written: the transaction is thrown away, and the others run again."""
    if lane == "Send":
        fail_after(monkeypatch, Send, core.HANDLERS[Send], lambda command: command.entries[0].message_id == "bug")
    else:
        fail_after(monkeypatch, UpdateTopic, core.HANDLERS[UpdateTopic], lambda command: command.queues == 9)
    poison = {
        "Send": (
            world.stubs.broker.Send,
            pb.SendRequest(topic=TOPIC, messages=[pb.Message(message_id=name, body=b"bug") for name in ("bug", "two")]),
        ),
        "UpdateTopic": (
            world.stubs.admin.UpdateTopic,
            pb.UpdateTopicRequest(topic=pb.Topic(name="flights", queues=9)),
        ),
    }[lane]
    goods = good(world)
    made = together(gate, world.stubs, [*goods[:3], poison, *goods[3:]])
    refused = [read_refusal(call) for call in made if call.exception() is not None]
    assert [refusal.code for refusal in refused] == ["INTERNAL"]
    assert refused[0].status is grpc.StatusCode.INTERNAL
    popped = next(
        bodies(call.result()) for call in made if isinstance(call.exception() or call.result(), pb.PopResponse)
    )
    assert popped[-1] == b"new"
    assert b"bug" not in popped
    shown = world.stubs.admin.GetTopic(pb.GetTopicRequest(name="flights"), timeout=CALL_S)
    assert shown.topic.queues == 8


def fail_after(
    monkeypatch: pytest.MonkeyPatch, kind: type, handler: Callable[[Tx, Any], Any], when: Callable[[Any], bool]
) -> None:
    """Makes a handler do its work, and then raise, for the commands that `when` names."""

    def broken(tx: Tx, command: Any) -> Any:
        answer = handler(tx, command)
        if when(command):
            raise ZeroDivisionError("a bug")
        return answer

    monkeypatch.setitem(core.HANDLERS, kind, broken)


def test_a_large_request_that_finds_no_room_in_the_map_is_refused_alone(
    world: World, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (storage.Transaction, JournaledTransaction):

        def full(
            self: Any, name: str, key: bytes, value: bytes, put: Callable[[Any, str, bytes, bytes], None] = kind.put
        ) -> None:
            if name == "log" and len(value) > 500_000:
                raise storage.MapFull
            put(self, name, key, value)

        monkeypatch.setattr(kind, "put", full)
    large = pb.SendRequest(topic="flights", messages=[pb.Message(body=b"x" * 600_000)])
    goods = good(world)
    made = together(gate, world.stubs, [*goods[1:4], (world.stubs.broker.Send, large), *goods[4:]])
    refused = [read_refusal(call).code for call in made if call.exception() is not None]
    assert refused.count("STORAGE_FULL") == len(refused) >= 1
    answers = [call.result() for call in made if call.exception() is None]
    assert any(isinstance(answer, pb.ChangeInvisibleTimeResponse) for answer in answers), "acks and extends go on"


def test_answers_are_the_same_with_and_without_bad_neighbours(world: World, gate: Gate, tmp_path: Path) -> None:
    expected = alone(tmp_path)
    goods, bads = good(world), bad(world)
    made = together(gate, world.stubs, [*(entry[:2] for entry in bads), *goods])
    got = [plain(call.result()) for call in made[len(bads) :]]
    assert got[0] == expected[0]
    assert got[2:5] == expected[2:5]
    assert bodies(got[1]) == bodies(expected[1])
