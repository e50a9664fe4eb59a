"""QueryAssignment and Heartbeat: the broker does the rebalance, clients only ask."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, refusal


def beat(stubs: Stubs, client: str, group: str = GROUP, **fields: Any) -> pb.HeartbeatResponse:
    request = pb.HeartbeatRequest(**{"client_id": client, "group": group, "topics": [TOPIC], **fields})
    answer: pb.HeartbeatResponse = stubs.broker.Heartbeat(request, timeout=CALL_S)
    return answer


def assignment(stubs: Stubs, client: str, group: str = GROUP, topic: str = TOPIC) -> pb.QueryAssignmentResponse:
    request = pb.QueryAssignmentRequest(topic=topic, group=group, client_id=client)
    answer: pb.QueryAssignmentResponse = stubs.broker.QueryAssignment(request, timeout=CALL_S)
    return answer


def queues_of(stubs: Stubs, *clients: str) -> list[list[int]]:
    answers = [assignment(stubs, client) for client in clients]
    assert all(answer.known and not answer.all for answer in answers)
    return [list(answer.queues) for answer in answers]


@pytest.fixture
def shared(stubs: Stubs) -> Stubs:
    """A topic of 8 queues and a group in which each queue is shared by two clients."""
    stubs.create_topic(queues=8)
    stubs.create_group(share_number=1)
    return stubs


@pytest.mark.mechanism("S1.25")
def test_every_client_pops_all_queues_of_a_group_without_a_share_number(stubs: Stubs) -> None:
    stubs.create_topic()
    stubs.create_group()
    everything = pb.QueryAssignmentResponse(known=True, all=True)
    assert assignment(stubs, "nobody") == everything
    for client in "abc":
        beat(stubs, client)
    assert assignment(stubs, "a") == everything


@pytest.mark.mechanism("S1.22")
@pytest.mark.slow
def test_a_client_without_a_session_keeps_what_it_had(shared: Stubs) -> None:
    for client in "abc":
        beat(shared, client)
    assert assignment(shared, "stranger") == pb.QueryAssignmentResponse()


def test_heartbeats_are_asked_for_well_within_a_session(shared: Stubs) -> None:
    assert 0 < beat(shared, "a").interval_ms * 3 <= 120_000


def test_sessions_are_counted_by_group(shared: Stubs, clock: FakeClock) -> None:
    shared.pop()
    for client in "abc":
        beat(shared, client)
    assert shared.stats().sessions == 3
    clock.advance(120_000)
    assert shared.stats().sessions == 0


@pytest.mark.mechanism("S2.29")
@pytest.mark.slow
def test_a_pop_needs_no_session(shared: Stubs) -> None:
    shared.send(b"a")
    assert len(shared.pop(client_id="never-heard-of").deliveries) == 1


@pytest.mark.mechanism("S1.24")
def test_a_heartbeat_may_name_topics_that_are_not_there_yet(shared: Stubs) -> None:
    beat(shared, "a", topics=[TOPIC, "later"])
    request = pb.QueryAssignmentRequest(topic="later", group=GROUP, client_id="a")
    assert refusal(shared.broker.QueryAssignment, request).code == "TOPIC_NOT_FOUND"
    shared.create_topic("later")
    assert assignment(shared, "a", topic="later").known


# ── Clients that read in one consume mode ────────────────────────────────────────────────────────────────────────────


def set_mode(stubs: Stubs, mode: str) -> None:
    stubs.admin.SetConsumeMode(pb.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=mode), timeout=CALL_S)


@pytest.mark.parametrize("mode", ["POP", "PULL"])
def test_queues_are_shared_among_those_that_can_read_in_the_mode_of_the_group(shared: Stubs, mode: str) -> None:
    lists = {"POP": "pop_topics", "PULL": "pull_topics"}
    set_mode(shared, mode)
    alone = queues_after(shared, dict.fromkeys("ace", lists[mode]))
    other = lists["PULL" if mode == "POP" else "POP"]
    assert queues_after(shared, dict.fromkeys("bdf", other), *"ace") == alone
    waits = assignment(shared, "b")
    assert waits == pb.QueryAssignmentResponse(known=True, mode=mode), "it has none, and does not keep its former ones"


def reads_by(stubs: Stubs, client: str, *lists: str) -> pb.HeartbeatResponse:
    """The answer to a heartbeat that names the topic in these lists."""
    fields: dict[str, Any] = {"topics": [], **{field: [TOPIC] for field in lists}}
    return beat(stubs, client, **fields)


def queues_after(stubs: Stubs, reads: dict[str, str], *clients: str) -> list[list[int]]:
    """The queues of the clients, or of those that beat here, after heartbeats that name the topic in these lists."""
    for client, field in reads.items():
        reads_by(stubs, client, field)
    return queues_of(stubs, *(clients or reads))


@pytest.mark.parametrize("lists", [["topics"], ["pop_topics", "pull_topics"], ["topics", "pop_topics"]])
def test_a_client_that_reads_in_either_mode_has_queues_in_both(shared: Stubs, lists: list[str]) -> None:
    for mode in ("POP", "PULL"):
        set_mode(shared, mode)
        for client in "abcd":
            reads_by(shared, client, *lists)
        assert all(queues_of(shared, *"abcd"))


def test_the_three_lists_of_a_heartbeat_have_4096_names_in_all(shared: Stubs) -> None:
    names = [f"t{number}" for number in range(4096)]
    beat(shared, "a", topics=names[:1], pop_topics=names[1:2], pull_topics=names[2:])
    request = pb.HeartbeatRequest(client_id="a", group=GROUP, topics=["x"], pop_topics=names[1:], pull_topics=names[:1])
    assert refusal(shared.broker.Heartbeat, request).info.field == "topics"
    request = pb.HeartbeatRequest(client_id="a", group=GROUP, pull_topics=["x", "no name"])
    assert refusal(shared.broker.Heartbeat, request).info.field == "pull_topics[1]"
