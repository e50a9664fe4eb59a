"""A sync that failed is final: nobody gets an OK, the broker ends, and a restart has everything that was answered."""

from pathlib import Path

import grpc
import pytest

from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.options import JOURNAL
from popmq_verify.powercut import watched
from tests.crash.store import broken_invariants

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("shim")]


COMMIT_FAILED = 74  # EX_IOERR of sysexits.h


@pytest.mark.parametrize("failing", ["POPMQ_CUT_SYNCS", "POPMQ_CUT_METAS"])
@pytest.mark.parametrize("number", [20, 37])
def test_a_failed_sync_is_never_answered_ok_and_ends_the_broker(tmp_path: Path, failing: str, number: int) -> None:
    broker = watched(tmp_path)
    if failing == "POPMQ_CUT_METAS" and JOURNAL == "on":
        number = 3 + number // 10  # LMDB then writes a meta page each second
    broker.environment[failing] = str(number)
    with broker, Stubs(broker.endpoint) as stubs:
        stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name="t", queues=1)))
        answered, error = send_until_refused(stubs)
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        broker.wait_dead()
    assert broker.exit_code == COMMIT_FAILED, broker.log_end()

    del broker.environment[failing]
    with broker, Stubs(broker.endpoint) as stubs:
        first = max(0, len(answered) - 50)
        page = stubs.admin.Browse(pb.BrowseRequest(topic="t", offset=first, max_messages=100))
        # The refused one may be there: its pages were written, and only their durability was not promised.
        assert [delivery.message.message_id for delivery in page.deliveries][: len(answered) - first] == answered[
            first:
        ]
        assert len(page.deliveries) <= len(answered) - first + 1
    assert broken_invariants(broker.data) == []


def send_until_refused(stubs: Stubs) -> tuple[list[str], grpc.RpcError]:
    """The ids of the answered sends, one message each, and how the next one ended."""
    answered: list[str] = []
    while True:
        message = pb.Message(message_id=f"m{len(answered)}", body=b"x" * 100)
        try:
            stubs.broker.Send(pb.SendRequest(topic="t", messages=[message]), timeout=10)
        except grpc.RpcError as error:
            return answered, error
        answered.append(message.message_id)
