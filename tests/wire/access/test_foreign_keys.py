"""What a client cannot do to the clients of other access keys, although its own key allows the call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded import EmbeddedBroker
from tests.wire.access.signing import SignedStubs, write_keys
from tests.wire.stubs import CALL_S, TOPIC, Stubs, refusal

SINK = "job"
PAYMENTS = "payments"
HIGHEST = (1 << 63) - 1
KEYS = {
    "root": ["*"],
    "operator": ["admin"],
    "sender": [f"send:{TOPIC}"],
    "guest": ["send:guests"],
}


class Keyed:
    """A broker with access keys, and a client for each."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        write_keys(folder / "keys.toml", KEYS)
        self.clock = FakeClock()
        broker = EmbeddedBroker(folder / "data", clock=self.clock, sync="none", access_keys=folder / "keys.toml")
        endpoint = stack.enter_context(broker).endpoint
        self.of: dict[str, Stubs] = {name: stack.enter_context(SignedStubs(endpoint, name)) for name in KEYS}
        self.root = self.of["root"]
        for topic in (TOPIC, PAYMENTS, "guests"):
            self.root.create_topic(topic, queues=1)
        self.root.create_group()


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Keyed]:
    with contextlib.ExitStack() as stack:
        yield Keyed(stack, tmp_path)


# ── Sinks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def staging(stage_id: str, batch: int, topic: str = TOPIC) -> pb.StageRequest:
    messages = [pb.Message(body=b"x")]
    return pb.StageRequest(topic=topic, messages=messages, sink=SINK, batch=batch, stage_id=stage_id)


def committing(batch: int, *stage_ids: str) -> pb.CommitBatchRequest:
    names = [pb.StageName(stage_id=stage_id, topic=TOPIC, messages=1) for stage_id in stage_ids]
    return pb.CommitBatchRequest(sink=SINK, batch=batch, stages=names)


def test_a_sink_belongs_to_the_access_key_that_stages_for_it_first(keyed: Keyed) -> None:
    sender, guest = keyed.of["sender"].broker, keyed.of["guest"].broker
    sender.Stage(staging("a", 7), timeout=CALL_S)
    refused = refusal(guest.CommitBatch, committing(HIGHEST))
    assert (refused.code, refused.info.field) == ("PERMISSION_DENIED", "sink")
    assert refusal(guest.Stage, staging("b", 7, "guests")).code == "PERMISSION_DENIED"
    dropped = pb.DropStagesRequest(sink=SINK, stages=[pb.StageName(stage_id="a", topic="guests")])
    assert refusal(guest.DropStages, dropped).code == "PERMISSION_DENIED"
    assert not sender.CommitBatch(committing(7, "a"), timeout=CALL_S).duplicate


def test_a_sink_with_a_committed_batch_takes_none_of_another_access_key(keyed: Keyed) -> None:
    sender, guest = keyed.of["sender"].broker, keyed.of["guest"].broker
    sender.CommitBatch(committing(7), timeout=CALL_S)
    assert refusal(guest.CommitBatch, committing(HIGHEST)).code == "PERMISSION_DENIED"
    sender.Stage(staging("a", 8), timeout=CALL_S)
    assert not sender.CommitBatch(committing(8, "a"), timeout=CALL_S).duplicate


def test_a_key_whose_sink_name_is_taken_is_refused_and_loses_no_message_silently(keyed: Keyed) -> None:
    keyed.of["guest"].broker.CommitBatch(committing(HIGHEST), timeout=CALL_S)
    assert refusal(keyed.of["sender"].broker.Stage, staging("a", 1)).code == "PERMISSION_DENIED"
    assert refusal(keyed.of["sender"].broker.CommitBatch, committing(1)).code == "PERMISSION_DENIED"


def test_a_key_with_admin_uses_the_sink_of_another_key_and_leaves_it_to_that_key(keyed: Keyed) -> None:
    sender = keyed.of["sender"].broker
    sender.Stage(staging("a", 7), timeout=CALL_S)
    keyed.root.broker.CommitBatch(committing(7, "a"), timeout=CALL_S)
    assert sender.CommitBatch(committing(7, "a"), timeout=CALL_S).duplicate
    assert refusal(keyed.of["guest"].broker.CommitBatch, committing(8)).code == "PERMISSION_DENIED"
