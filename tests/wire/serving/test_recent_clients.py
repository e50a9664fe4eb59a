"""ListSessions with `recent`: clients that pop, pull or send without a session, over both protocols."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols.access import recent_calls
from popmq_server.protocols.access.recent_calls import RECENT_MS, RecentCalls, host_of
from tests.wire.access.signing import SignedStubs, write_keys
from tests.wire.parked import Parked
from tests.wire.rocketmq.v2 import V2, message
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, refusal

Row = tuple[str, str, list[str], str]


def listed(stubs: Any, group: str = "", **fields: Any) -> list[pb.ClientSession]:
    request = pb.ListSessionsRequest(group=group, **{"recent": True, **fields})
    return list(stubs.admin.ListSessions(request, timeout=CALL_S).sessions)


def calls(row: pb.ClientSession) -> str:
    return f"{row.pops}/{row.pulls}/{row.sends}"


def shown(stubs: Any, group: str = "") -> list[Row]:
    return [(row.client_id, row.group, list(row.topics), calls(row)) for row in listed(stubs, group)]


@pytest.mark.promise("statistics")
def test_a_client_that_only_pops_is_listed_with_its_calls_and_its_messages_in_flight(shop: Stubs) -> None:
    assert listed(shop) == []
    shop.send(b"a", b"b", b"c")
    for _ in range(2):
        shop.pop(client_id="reader-1", max_messages=1)
    sent, popped = listed(shop)
    assert (popped.client_id, popped.group, list(popped.topics), calls(popped)) == ("reader-1", GROUP, [TOPIC], "2/0/0")
    assert (popped.in_flight, popped.recent, popped.stream, popped.host) == (2, True, False, "127.0.0.1")
    assert (sent.client_id, sent.group, list(sent.topics), calls(sent)) == ("reader-1", "", [TOPIC], "0/0/1")
    assert shown(shop, GROUP) == [("reader-1", GROUP, [TOPIC], "2/0/0")]


def test_sessions_are_listed_alone_unless_recent_calls_are_asked_for(shop: Stubs) -> None:
    shop.pop(client_id="reader-1")
    assert listed(shop, recent=False) == []


def test_the_calls_of_a_client_with_a_session_are_in_the_row_of_its_session(shop: Stubs, clock: FakeClock) -> None:
    shop.broker.Heartbeat(pb.HeartbeatRequest(group=GROUP, client_id="reader-1", topics=[TOPIC]), timeout=CALL_S)
    shop.pop(client_id="reader-1")
    shop.pop(client_id="reader-2")
    assert [(row.client_id, row.recent, calls(row)) for row in listed(shop)] == [
        ("reader-1", False, "1/0/0"),
        ("reader-2", True, "1/0/0"),
    ]
    clock.advance(120_000)
    assert [(row.client_id, row.recent) for row in listed(shop)] == [("reader-1", True), ("reader-2", True)]


def test_a_client_is_forgotten_five_minutes_after_its_last_call(shop: Stubs, clock: FakeClock) -> None:
    shop.pop(client_id="early")
    clock.advance(1_000)
    shop.pop(client_id="late")
    clock.advance(RECENT_MS - 1_000)
    assert [row.client_id for row in listed(shop)] == ["late"]
    clock.advance(1_000)
    assert listed(shop) == []


def test_a_pop_that_waits_is_listed_and_a_refused_one_is_not(shop: Stubs, parked: Parked) -> None:
    waiting = shop.pop_later(client_id="waits")
    parked.wait_for(1)
    assert shown(shop) == [("waits", GROUP, [TOPIC], "1/0/0")]
    refused = pb.PopRequest(topic=TOPIC, group="nobody", client_id="lost")
    assert refusal(shop.broker.Pop, refused).code == "GROUP_NOT_FOUND"
    pulled = pb.PullRequest(topic="nothing", queue=0)
    assert refusal(shop.broker.Pull, pulled).code == "TOPIC_NOT_FOUND"
    assert [row.client_id for row in listed(shop)] == ["waits"]
    waiting.cancel()


def test_a_client_that_only_sends_or_pulls_is_listed_by_its_host(shop: Stubs) -> None:
    shop.send(b"a")
    shop.broker.Pull(pb.PullRequest(topic=TOPIC, queue=0), timeout=CALL_S)
    (row,) = listed(shop)
    assert (row.client_id, row.group, row.host, calls(row)) == ("", "", "127.0.0.1", "0/1/1")


@pytest.mark.promise("statistics")
def test_official_clients_are_listed_too(shop: Stubs, v2: V2) -> None:
    assert v2.send(message()).status.code == v2pb.OK
    v2.receive()
    sent, popped = listed(shop)
    assert (sent.client_id, calls(sent)) == (popped.client_id, "0/0/1")
    assert (popped.group, calls(popped), popped.in_flight) == (GROUP, "1/0/0", 1)


def test_rows_come_in_pages_none_of_them_twice(shop: Stubs) -> None:
    shop.broker.Heartbeat(pb.HeartbeatRequest(group=GROUP, client_id="b", topics=[TOPIC]), timeout=CALL_S)
    for client in "abc":
        shop.pop(client_id=client)
    pages, token = list[str](), ""
    for _ in range(3):
        asked = pb.ListSessionsRequest(recent=True, page_size=1, page_token=token)
        page = shop.admin.ListSessions(asked, timeout=CALL_S)
        pages, token = [*pages, *(row.client_id for row in page.sessions)], page.next_page_token
    assert (pages, token) == (["b", "a", "c"], "")


@pytest.fixture
def guarded(tmp_path: Path, clock: FakeClock) -> Iterator[tuple[Stubs, Stubs]]:
    """The clients of two keys: root, and one that may only read."""
    keys = tmp_path / "keys.toml"
    write_keys(keys, {"root": ["*"], "reads": [f"receive:{TOPIC}/{GROUP}"]})
    with (
        EmbeddedBroker(tmp_path / "data", clock=clock, access_keys=keys) as broker,
        SignedStubs(broker.endpoint, "root") as root,
        SignedStubs(broker.endpoint, "reads") as reads,
    ):
        root.create_topic(queues=1)
        root.create_group()
        yield root, reads


def test_only_the_right_admin_sees_hosts_and_keys(guarded: tuple[Stubs, Stubs]) -> None:
    root, reads = guarded
    for client in guarded:
        client.pop(client_id="same-id")
    assert [(row.access_key, row.host, calls(row)) for row in listed(root, GROUP)] == [
        ("reads", "127.0.0.1", "1/0/0"),
        ("root", "127.0.0.1", "1/0/0"),
    ]
    assert [(row.access_key, row.host, calls(row)) for row in listed(reads, GROUP)] == [("", "", "2/0/0")]
    request = pb.ListSessionsRequest(recent=True)
    assert refusal(reads.admin.ListSessions, request).code == "PERMISSION_DENIED"


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_calls, "USES_MAX", 16)
    clock = FakeClock()
    recent = RecentCalls(clock)
    for number in range(100):
        clock.advance(1)
        recent.began("pops", GROUP, TOPIC, f"client-{number}")
    kept = sorted(int(row.client_id.partition("-")[2]) for row in recent.listed())
    assert len(kept) <= 16
    assert kept == list(range(100 - len(kept), 100))


@pytest.mark.parametrize(
    ("peer", "host"),
    [("ipv4:10.0.0.7:51234", "10.0.0.7"), ("ipv6:[::1]:51234", "::1"), ("ipv6:%5B::1%5D:51234", "::1"), ("unix:", "")],
)
def test_a_host_is_read_from_the_name_of_a_connection(peer: str, host: str) -> None:
    assert host_of(peer) == host
