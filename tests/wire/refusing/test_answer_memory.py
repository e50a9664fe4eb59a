"""What answers that their clients do not take cost the broker's process: no more than was promised to them."""

import contextlib
import sys
from pathlib import Path

import pytest

from harness.broker_process import BrokerProcess
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.protocols.answer_room import CONNECTION_BYTES
from tests.wire.refusing.deaf import Deaf

MIB = 1 << 20
#: Messages of 1 MiB, all of which an answer may have, and calls of each connection: they ask for fifteen times as much
#: as it may have.
MESSAGES, CALLS, CONNECTIONS = 15, 60, 2


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc; the allocator is glibc's")
def test_answers_that_are_not_taken_cost_the_process_what_their_clients_may_have(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--sync", "none") as broker, Stubs(broker.endpoint) as stubs:
        stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name="t", queues=1)))
        for _ in range(4):
            stubs.broker.Send(pb.SendRequest(topic="t", messages=[pb.Message(body=bytes(MIB))] * MESSAGES))
        pull = pb.PullRequest(topic="t", max_messages=32, max_bytes=16 * MIB)
        stubs.broker.Pull(pull)
        before = most = broker.memory_bytes
        with contextlib.ExitStack() as stack:
            for _ in range(CONNECTIONS):
                client = stack.enter_context(contextlib.closing(Deaf(broker.endpoint)))
                for _ in range(CALLS):
                    client.ask("/popmq.v1.Broker/Pull", pull.SerializeToString())
                while not client.has_heard:
                    client.hear()
                    most = max(most, broker.memory_bytes)
    assert 0.7 < (most - before) / (CONNECTIONS * CONNECTION_BYTES) < 1.06
