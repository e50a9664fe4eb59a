"""The deadline of a client reaches the engine, whichever protocol and form of call it uses."""

from collections.abc import Iterator

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract import commands as do
from popmq_server.contract import deadline
from popmq_server.contract.operations import A, Command
from tests.engine.stub import StubEngine
from tests.wire.rocketmq.v2 import V2, message
from tests.wire.served import Served
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

#: Deadlines of these calls, in seconds.
FAR, NEAR = 3_000.0, 1_000.0


class Waiting(StubEngine):
    """Notes how long each caller waits still."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.left_s: list[float | None] = []

    async def execute(self, command: Command[A]) -> A:
        if isinstance(command, do.Send):
            self.left_s.append(deadline.remaining_s())
        return await super().execute(command)

    async def pop(self, command: do.Pop, wait_ms: int) -> do.Popped:
        self.left_s.append(deadline.remaining_s())
        return await super().pop(command, wait_ms)

    def since(self) -> list[float | None]:
        """The notes since the last time."""
        found, self.left_s = self.left_s, []
        return found


@pytest.fixture
def waiting(clock: FakeClock) -> Iterator[tuple[Waiting, Served]]:
    served = Served(clock)
    served.life.engine = engine = Waiting(clock)
    with served, Stubs(served.endpoint) as stubs:
        stubs.create_topic(queues=1)
        stubs.create_group()
        engine.since()
        yield engine, served


def test_an_engine_sees_the_deadline_of_each_call_and_none_of_one_without(waiting: tuple[Waiting, Served]) -> None:
    engine, served = waiting
    with Stubs(served.endpoint) as stubs:
        send = pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=b"a")])
        for asked_s in (FAR, NEAR):
            stubs.broker.Send(send, timeout=asked_s)
            (left_s,) = engine.since()
            assert left_s == pytest.approx(asked_s, abs=100)
        stubs.broker.Send(send)
        stubs.broker.Pop(pb.PopRequest(topic=TOPIC, group=GROUP))
        assert engine.since() == [None, None]
    assert deadline.remaining_s() is None, "no call is running here"


def test_so_it_does_with_an_official_client_also_on_a_stream(waiting: tuple[Waiting, Served]) -> None:
    engine, served = waiting
    with V2(served.endpoint) as client:
        client.send(message(b"a"))
        client.receive(deadline_s=NEAR)
    sent_s, popped_s = engine.since()
    assert sent_s == pytest.approx(CALL_S, abs=50)
    assert popped_s == pytest.approx(NEAR, abs=100)
