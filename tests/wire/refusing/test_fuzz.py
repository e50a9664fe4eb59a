"""A few thousand wrong requests for all methods: never INTERNAL, the broker lives, and its store is sound.

POPMQ_FUZZ names how many for each seed; POPMQ_SEED another first seed.
"""

import os
from collections import Counter
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire import world as worlds
from tests.wire.contract import errors_of_page
from tests.wire.refusing.mutation import Mutator
from tests.wire.stubs import GROUP, TOPIC, Stubs, bodies, check_error, handles, read_refusal
from tests.wire.world import METHODS, OTHER_GROUP, OTHER_TOPIC, OWNER, World, good_requests, token

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("POPMQ_FUZZ", "800"))
FIRST_SEED = int(os.environ.get("POPMQ_SEED", "0"))
#: What a wrong request may be told. Not INTERNAL, not UNKNOWN, and not UNAVAILABLE.
STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}


class Fuzz:
    """One run: the world, renewed when wrong requests have emptied it, and the outcomes."""

    def __init__(self, stubs: Stubs, folder: Path, clock: FakeClock, seed: int) -> None:
        self.world: World = worlds.build(stubs, folder, clock)
        names = [TOPIC, OTHER_TOPIC, GROUP, OTHER_GROUP, OWNER, f"%RETRY%{GROUP}+{TOPIC}", self.world.live]
        names += [handle for handle, _ in self.world.bad_handles.values()]
        self.mutate = Mutator(seed, names)
        self.outcomes: Counter[str] = Counter()
        self.documented = errors_of_page()

    def requests(self) -> dict[str, list[Message]]:
        """What wrong requests are made from: the good ones, and the rarer forms of them."""
        found = {name: [request] for name, request in good_requests(self.world).items()}
        sealed = pb.PopRequest(topic=TOPIC, group=GROUP, token=token(self.world), max_messages=2)
        tried = pb.PopRequest(topic=TOPIC, group=OTHER_GROUP, client_id="c", attempt_id="a", format=pb.FORMAT_COLUMNS)
        found["Broker/Pop"] += [sealed, sealed, tried]
        changes = [{"extend": pb.Extend(invisible_ms=1_000)}, {"release": pb.Release()}, {"reject": pb.Reject()}]
        found["Broker/ChangeInvisibleTime"] += [
            pb.ChangeInvisibleTimeRequest(
                group=GROUP,
                changes=[pb.InvisibleTimeChange(handle=self.world.live, **change)],  # type: ignore[arg-type]
            )
            for change in changes
        ]
        message = pb.Message(message_id="m", body=b"b", tag="t", keys=["k"], properties={"a": "b"})
        numbered = pb.SendRequest(topic=TOPIC, messages=[message] * 2, producer_id="p", request_number=1)
        found["Broker/Send"] += [numbered, pb.SendRequest(topic=OTHER_TOPIC, messages=[message])]
        return found

    def run(self, cases: int) -> None:
        requests, pick = self.requests(), self.mutate.pick
        for case in range(cases):
            if case % 50 == 49:
                self.world.clock.advance(pick.choice([0, 1_000, 60_000]))
                self.restock()
            name = pick.choice(METHODS)
            self.outcomes[self.answered(name, self.mutate(pick.choice(requests[name])))] += 1

    def restock(self) -> None:
        """Creates what wrong requests have deleted, and sends messages, so that later requests find something."""
        unbounded = pb.Topic(
            name=TOPIC, quota=pb.Quota(), retention=pb.Retention(), unique_ids_ms=0, permission=pb.READ_WRITE
        )
        made = [
            ("Admin/CreateTopic", pb.CreateTopicRequest(topic=pb.Topic(name=TOPIC, queues=1))),
            ("Admin/CreateTopic", pb.CreateTopicRequest(topic=pb.Topic(name=OTHER_TOPIC))),
            ("Admin/CreateGroup", pb.CreateGroupRequest(group=pb.Group(name=GROUP))),
            ("Admin/CreateGroup", pb.CreateGroupRequest(group=pb.Group(name=OTHER_GROUP))),
            ("Admin/UpdateTopic", pb.UpdateTopicRequest(topic=unbounded)),
            ("Admin/UpdateGroup", pb.UpdateGroupRequest(group=pb.Group(name=GROUP, consume_enable=True))),
        ]
        for name, request in made:
            assert self.answered(name, request.SerializeToString()) in ("OK", "ALREADY_EXISTS")
        self.world.stubs.send(b"a", b"b", b"c")
        self.mutate.names += handles(self.world.stubs.pop(max_messages=3))

    def answered(self, name: str, raw: bytes) -> str:
        """Makes a call; its code. AssertionError when the answer is none that a wrong request may get."""
        if name == "Broker/GetResults":
            raw += b"\x18\x00"  # wait_ms: it would wait for a clock that nobody moves
        try:
            answer = self.world.stubs.raw(name, raw)
        except grpc.RpcError as error:
            return self.code_of(error, name, raw)
        read = getattr(pb, name.partition("/")[2] + "Response").FromString(answer)
        for result in getattr(read, "results", ()):
            if result.HasField("error"):
                check_error(result.error)
                self.outcomes[pb.Code.Name(result.error.code)] += 1
        return "OK"

    def code_of(self, error: grpc.RpcError, name: str, raw: bytes) -> str:
        refused = read_refusal(error)
        assert refused.status in STATUSES, f"{name} {raw!r} → {error}"
        assert refused.code in self.documented[name.partition("/")[2]], f"{name} is not said to end so: {error}"
        return refused.code


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 5))
def test_wrong_requests_are_refused_and_harm_nothing(stubs: Stubs, folder: Path, clock: FakeClock, seed: int) -> None:
    fuzz = Fuzz(stubs, folder, clock, seed)
    fuzz.run(CASES)
    outcomes = fuzz.outcomes
    assert "INTERNAL" not in outcomes
    assert min(outcomes["OK"], outcomes["INVALID_FIELD"]) > CASES / 20, f"the run was dull: {outcomes}"
    assert len(outcomes) >= 8, f"the run was dull: {outcomes}"
    stubs.create_topic("afterwards", queues=1)
    stubs.create_group("afterwards")
    stubs.send(b"a", topic="afterwards")
    popped = stubs.pop("afterwards", "afterwards")
    assert bodies(popped) == [b"a"]
    assert stubs.ack(*handles(popped), group="afterwards") == [""]
