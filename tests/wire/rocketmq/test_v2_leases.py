"""apache.rocketmq.v2: how long a client holds what it received, and what becomes of it when the client goes."""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from popmq_http2 import Arrival
from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as v1
from popmq_server.clock import FakeClock
from popmq_server.contract.commands import ChangeInvisibleTime, Pop, Popped
from popmq_server.contract.operations import Query
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.monitoring.metrics import Metrics
from popmq_server.monitoring.rates import Rates
from popmq_server.protocols.rocketmq.call import RocketmqCall
from popmq_server.protocols.rocketmq.clients import ConnectedClients
from popmq_server.protocols.rocketmq.receiving import ReceiveService
from popmq_server.protocols.rocketmq.remembered import NewestHandles
from popmq_server.protocols.traffic import Traffic
from tests.wire.gate import Gate
from tests.wire.gone import Gone
from tests.wire.parked import Parked
from tests.wire.rocketmq.v2 import PREFIX, V2, bodies, code, later, message, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

SECOND, MINUTE = 1_000, 60_000


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Gone:
    return Gone(monkeypatch)


def test_a_lease_with_auto_renew_lasts_a_minute_whatever_is_asked(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    """One client names 30 s beside auto_renew."""
    v2.send(message())
    v2.receive(auto_renew=True, invisible_duration={"seconds": 30})
    clock.advance(MINUTE - 1)
    with V2(v2.endpoint, client_id="other") as other:
        assert code(other) == "MESSAGE_NOT_FOUND"
        clock.advance(1)
        assert bodies(other.receive()) == [b"body"]


def test_a_lease_with_auto_renew_lasts_while_the_client_is_heard_of(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    v2.send(message())
    (found,) = v2.receive(auto_renew=True).messages
    with V2(v2.endpoint, client_id="other") as other:
        for _ in range(20):
            clock.advance(30 * SECOND)
            v2.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))
            assert code(other) == "MESSAGE_NOT_FOUND"
        assert v2.ack(found).status.code == pb.OK


@pytest.mark.promise("redelivery")
def test_messages_with_auto_renew_come_back_at_once_when_the_client_ends(shop: Stubs, v2: V2) -> None:
    v2.send(message())
    v2.receive(auto_renew=True)
    v2.call("NotifyClientTermination", group=resource(GROUP))
    with V2(v2.endpoint, client_id="other") as other:
        (found,) = other.receive().messages
    assert found.system_properties.delivery_attempt == 2


def test_a_push_consumer_keeps_its_messages_over_an_outage_of_the_broker(folder: Path, clock: FakeClock) -> None:
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        stubs.create_topic(queues=1)
        stubs.create_group()
        with V2(broker.endpoint) as v2:
            v2.send(message())
            (found,) = v2.receive(auto_renew=True).messages
            v2.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))
    clock.advance(5 * MINUTE)
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, V2(broker.endpoint) as v2:
        clock.advance(30 * SECOND)
        v2.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))
        clock.advance(MINUTE - 1)
        with V2(v2.endpoint, client_id="other") as other:
            assert code(other) == "MESSAGE_NOT_FOUND"
        assert v2.ack(found).status.code == pb.OK
    assert check_folder(folder) == []


def test_the_same_attempt_again_gets_the_same_messages_uncounted(shop: Stubs, v2: V2) -> None:
    v2.send(message())
    first = v2.receive(auto_renew=True, attempt_id="try").messages
    assert v2.receive(auto_renew=True, attempt_id="try").messages == first
    with V2(v2.endpoint, client_id="other") as other:
        assert code(other, auto_renew=True, attempt_id="try") == "MESSAGE_NOT_FOUND"


@pytest.mark.slow
def test_an_empty_answer_is_not_remembered_with_its_attempt(shop: Stubs, v2: V2) -> None:
    assert code(v2, attempt_id="try") == "MESSAGE_NOT_FOUND"
    v2.send(message())
    assert bodies(v2.receive(attempt_id="try")) == [b"body"]


# ── Clients that go ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_that_stops_waiting_takes_nothing(shop: Stubs, v2: V2, parked: Parked, gone: Gone) -> None:
    call = later(v2, poll_ms=20 * SECOND)
    parked.wait_for(1)
    call.cancel()
    gone.wait_for(1)
    shop.send(b"a")
    assert bodies(v2.receive(poll_ms=SECOND)) == [b"a"]


@pytest.mark.parametrize("renews", [True, False])
def test_the_polls_of_a_client_that_says_goodbye_end_with_nothing(
    shop: Stubs, v2: V2, parked: Parked, renews: bool
) -> None:
    with V2(v2.endpoint, client_id="other") as other:
        polls = [later(v2, poll_ms=20 * SECOND, auto_renew=renews) for _ in range(2)]
        stays = later(other, poll_ms=20 * SECOND, auto_renew=renews)
        parked.wait_for(3)
        assert v2.code("NotifyClientTermination", group=resource(GROUP)) == "OK"
        for poll in polls:
            first, last = [rpc.ReceiveMessageResponse.FromString(raw) for raw in poll]
            assert (first.status.code, last.HasField("delivery_timestamp")) == (pb.MESSAGE_NOT_FOUND, True)
        v2.send(message())
        assert rpc.ReceiveMessageResponse.FromString(next(stays)).status.code == pb.OK


@pytest.mark.parametrize("attempt_id", ["", "try"])
def test_messages_of_a_cancelled_receive_come_back_at_once_without_counting_an_attempt(
    shop: Stubs, v2: V2, gate: Gate, gone: Gone, attempt_id: str
) -> None:
    """With an attempt id too: a client that never asks for it again would keep it hidden while it lives."""
    v2.send(message())
    with gate.closed():
        call = later(v2, auto_renew=True, attempt_id=attempt_id, queue=-1)
        gate.wait_for(1)
        call.cancel()
        gone.wait_for(1)
    (found,) = v2.receive(poll_ms=10 * SECOND).messages
    assert found.system_properties.delivery_attempt == 1


class Desk:
    """An engine that answers one Pop and records the later commands."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def ask(self, query: Query[Any]) -> Any:
        return [Shares(0)]

    async def execute(self, command: Any) -> Any:
        self.told.append(command)
        return (0, 0)

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        data = v1.Message(message_id="m", body=b"x").SerializeToString()
        return Popped([(data, 1, 0, number, 1, b"%d" % number) for number in range(4)], 1, 2, 0)


class Shares(NamedTuple):
    share_number: int


def receiving(desk: Desk, call: RocketmqCall, renews: bool = True) -> AsyncGenerator[Any, None]:
    """The elements of a ReceiveMessage that is answered by a desk."""
    engine: Any = desk
    clock, metrics = FakeClock(), Metrics()
    traffic = Traffic(clock, metrics, Rates(clock))
    service = ReceiveService(engine, ConnectedClients(engine, clock), NewestHandles(), clock, traffic, metrics)
    request = rpc.ReceiveMessageRequest(
        group=resource(GROUP), message_queue=pb.MessageQueue(topic=resource(TOPIC)), auto_renew=renews
    )
    request.invisible_duration.FromSeconds(30)
    return service.ReceiveMessage(request, call)


@pytest.mark.parametrize(
    ("read", "tried", "paused", "untold"),
    [
        (1, [], [], [0, 1, 2, 3]),
        (2, [0], [], [1, 2, 3]),
        (3, [1], [0], [2, 3]),
        (5, [3], [0, 1, 2], []),
        (6, [], [], []),
    ],
)
@pytest.mark.parametrize("renews", [True, False])
def test_a_receive_stream_that_breaks_releases_its_messages(
    read: int, tried: list[int], paused: list[int], untold: list[int], renews: bool
) -> None:
    """What was being handed over when the stream broke may have arrived, or be why it broke: that counts.

    Clients drop what came before it. A lease with a time of its own may go on, one that lasts as the client may not.
    """

    async def scenario() -> list[Any]:
        desk = Desk()
        stream = receiving(desk, RocketmqCall("c", "JAVA", "", lambda: None), renews)
        for _ in range(read):
            await anext(stream)
        await stream.aclose()
        await asyncio.sleep(0)
        return [command for command in desk.told if isinstance(command, ChangeInvisibleTime)]

    given = [change for command in asyncio.run(scenario()) for change in command.changes]
    said = [(int(change.handle), change.kind, change.delay_ms, change.uncounted) for change in given]
    expected = [(one, "release", SECOND, False) for one in tried]
    expected += [(one, "release", SECOND, True) for one in paused if renews]
    assert said == expected + [(one, "release", 0, True) for one in untold]


def test_a_lost_delivery_is_released_in_the_name_of_its_caller() -> None:
    """The transport tells of it outside of the call, and the engine asks for the caller's access key."""
    said = contextvars.ContextVar("said", default="")

    class Asking(Desk):
        async def execute(self, command: Any) -> Any:
            self.told.append((command, said.get()))
            return 0, 0

    async def scenario() -> list[tuple[Any, str]]:
        desk, watching = Asking(), list[Callable[[Arrival], Any]]()

        async def call() -> None:
            said.set("the caller")
            async for _ in receiving(desk, RocketmqCall("c", "JAVA", "", lambda: None, watching.append)):
                pass

        await asyncio.create_task(call())
        (tell,) = watching
        tell(Arrival.LOST)
        await asyncio.sleep(0)
        return [(command, who) for command, who in desk.told if isinstance(command, ChangeInvisibleTime)]

    ((command, who),) = asyncio.run(scenario())
    assert ([int(change.handle) for change in command.changes], who) == ([0, 1, 2, 3], "the caller")


@pytest.mark.slow
def test_a_message_that_a_client_cannot_take_ends_among_the_dead_letters(
    stubs: Stubs, v2: V2, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Node and C# take 4 MiB at once by default. It must not go round for ever, nor be taken for a bug.

    Whether the broker hears that it was not taken depends on the release of gRPC; if not, the lease ends.
    """
    stubs.create_topic(queues=1)
    stubs.create_group(max_attempts=2)
    assert v2.send(message(b"x" * (4 << 20))).status.code == pb.OK
    with grpc.insecure_channel(v2.endpoint) as small:
        for _ in range(2):
            calls: Any = small.unary_stream(PREFIX + "ReceiveMessage")
            with pytest.raises(grpc.RpcError, match="larger than max"):
                list(calls(v2.receive_request().SerializeToString(), metadata=v2.headers, timeout=CALL_S))
            assert code(v2) == "MESSAGE_NOT_FOUND"
            clock.advance(30 * SECOND)
    assert code(v2) == "MESSAGE_NOT_FOUND"
    assert stubs.stats().dead == 1
    assert not [one for one in caplog.records if one.name == "popmq.protocols"]
