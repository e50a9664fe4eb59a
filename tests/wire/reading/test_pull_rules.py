"""Mechanisms of pull consumption over the wire that no other test names. Ids are those of mechanisms.md."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract.commands import Pull
from popmq_server.embedded.loop.parked_pulls import PIECE_BYTES
from tests.wire.gate import Gate
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, handles


def pulled(gate: Gate) -> Pull:
    """The one Pull that has reached the writer."""
    (found,) = (command for group in gate.groups for command in group if isinstance(command, Pull))
    return found


def switch(shop: Stubs, mode: Any) -> None:
    request = pb.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=mode)
    shop.admin.SetConsumeMode(request, timeout=CALL_S)


@pytest.mark.mechanism("S2.21")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("filter", "asked"),
    [(pb.Filter(tag="red"), ("tag", "red")), (pb.Filter(sql92="a = 1"), ("sql92", "a = 1")), (None, None)],
)
def test_every_field_of_a_pull_request_reaches_the_engine(
    shop: Stubs, gate: Gate, filter: pb.Filter | None, asked: tuple[str, str] | None
) -> None:
    """The flags of the reference are fields here, and arrive unchanged."""
    shop.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, queues=2)), timeout=CALL_S)
    switch(shop, pb.PULL)
    for _ in range(2):
        shop.send(b"a", b"b", b"c")
    gate.groups.clear()
    request = pb.PullRequest(topic=TOPIC, group=GROUP, queue=1, offset=2, max_messages=7, max_bytes=9_000)
    request.commit_offset = 1
    if filter is not None:
        request.filter.CopyFrom(filter)
    shop.broker.Pull(request, timeout=CALL_S)
    assert pulled(gate) == Pull(TOPIC, GROUP, 1, 2, 7, 9_000, asked, 1)


@pytest.mark.mechanism("S0.19", "S2.22")
@pytest.mark.slow
def test_a_pull_with_few_fields_takes_the_defaults_and_commits_nothing(shop: Stubs, gate: Gate) -> None:
    """Unset is not zero: no offset is committed, and the filter is the group's own."""
    shop.send(b"a")
    gate.groups.clear()
    answer = shop.broker.Pull(pb.PullRequest(topic=TOPIC), timeout=CALL_S)
    assert pulled(gate) == Pull(TOPIC, "", 0, 0, 32, PIECE_BYTES, None, None)  # the first piece of 3 MiB
    assert (answer.status, answer.next_offset, answer.min_offset, answer.max_offset) == (pb.FOUND, 1, 0, 1)
    assert [delivery.handle for delivery in answer.deliveries] == [""]


def assignment(shop: Stubs, client: str, **fields: Any) -> pb.QueryAssignmentResponse:
    request = pb.QueryAssignmentRequest(topic=TOPIC, group=GROUP, client_id=client, **fields)
    answer: pb.QueryAssignmentResponse = shop.broker.QueryAssignment(request, timeout=CALL_S)
    return answer


@pytest.mark.mechanism("S1.23")
@pytest.mark.slow
@pytest.mark.parametrize("mode", [pb.POP, pb.PULL])
def test_a_broadcast_assigns_every_queue_to_every_client(stubs: Stubs, mode: Any) -> None:
    """With a session or without, whatever others have."""
    stubs.create_topic(queues=5)
    stubs.create_group()
    switch(stubs, mode)
    for client in "ab":
        stubs.broker.Heartbeat(pb.HeartbeatRequest(client_id=client, group=GROUP, topics=[TOPIC]), timeout=CALL_S)
    for client in ("a", "b", "stranger"):
        answer = assignment(stubs, client, broadcast=True)
        assert (answer.known, answer.all, list(answer.queues)) == (True, True, [0, 1, 2, 3, 4])


@pytest.mark.mechanism("D.63")
@pytest.mark.slow
def test_an_assignment_names_the_consume_mode_of_the_group(shop: Stubs) -> None:
    """A group without a mode pops; every answer has the mode, without a request for it."""
    assert assignment(shop, "a") == pb.QueryAssignmentResponse(known=True, all=True, mode=pb.POP)
    switch(shop, pb.PULL)
    shop.broker.Heartbeat(pb.HeartbeatRequest(client_id="a", group=GROUP, topics=[TOPIC]), timeout=CALL_S)
    assert assignment(shop, "a") == pb.QueryAssignmentResponse(known=True, queues=[0], mode=pb.PULL)
    switch(shop, pb.POP)
    assert assignment(shop, "a").mode == pb.POP


@pytest.mark.mechanism("D.71")
@pytest.mark.slow
def test_sessions_list_clients_with_last_sign_of_life_and_leases(shop: Stubs, clock: FakeClock) -> None:
    """The time moves with each sign of life, and is another one for each client."""

    def sessions() -> dict[str, tuple[int, int]]:
        answer = shop.admin.ListSessions(pb.ListSessionsRequest(group=GROUP), timeout=CALL_S)
        assert {(row.group, tuple(row.topics), row.stream) for row in answer.sessions} <= {(GROUP, (TOPIC,), False)}
        return {row.client_id: (row.last_seen_ms - start_ms, row.in_flight) for row in answer.sessions}

    def beat(client: str) -> None:
        shop.broker.Heartbeat(pb.HeartbeatRequest(client_id=client, group=GROUP, topics=[TOPIC]), timeout=CALL_S)

    start_ms = clock.now_ms()
    assert sessions() == {}
    beat("a")
    clock.advance(10_000)
    beat("b")
    shop.send(b"x", b"y", b"z")
    taken = handles(shop.pop(max_messages=2, client_id="a"))
    shop.pop(client_id="b")
    assert sessions() == {"a": (0, 2), "b": (10_000, 1)}
    clock.advance(5_000)
    beat("a")
    shop.ack(*taken)
    assert sessions() == {"a": (15_000, 0), "b": (10_000, 1)}
