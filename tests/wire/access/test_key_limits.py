"""Limits of one access key: what is refused and until when, that nobody else notices, and that each is counted."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.errors import Refused
from popmq_server.protocols import authentication
from popmq_server.protocols.access import known_keys
from popmq_server.protocols.access.key_limits import KeyLimits, KeyUse
from tests.wire.access.signing import KeyedBroker, secret_of, signed
from tests.wire.parked import Parked
from tests.wire.rocketmq.v2 import V2, message
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Refusal, handles, read_refusal

GREEDY, OTHER = "greedy", "other"


class Limited(KeyedBroker):
    """A broker with a key that has limits and one that has none."""

    usual = GREEDY

    def __init__(self, stack: contextlib.ExitStack, folder: Path, clock: FakeClock, transport: str) -> None:
        self.keys = folder / "keys.toml"
        self.limit("")
        super().__init__(stack, folder, clock, transport)
        self.root = self.other = self.client(OTHER)
        self.other.create_topic(queues=1)
        self.other.create_group()

    def limit(self, line: str) -> None:
        tables = [f"[{name}]\nsecret = '{secret_of(name)}'\nallow = ['*']\n" for name in (OTHER, GREEDY)]
        draft = self.keys.with_suffix(".new")
        draft.touch(0o600)
        draft.write_text(f"{''.join(tables)}{line}\n")
        draft.replace(self.keys)


@pytest.fixture(params=["python", "grpcio"])
def limited(
    tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Limited]:
    monkeypatch.setattr(known_keys, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(authentication, "HELD_MS_MAX", 0)
    with contextlib.ExitStack() as stack:
        yield Limited(stack, tmp_path, clock, request.param)


def refused(call: Any, request: Any) -> Refusal:
    with pytest.raises(grpc.RpcError) as error:
        call(request, timeout=CALL_S)
    return read_refusal(error.value)


def told(refusal: Refusal) -> tuple[grpc.StatusCode, str, str, bool]:
    return refusal.status, refusal.code, refusal.info.field, refusal.info.retryable


LIMITED = (grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED", "access_key", True)
ASK = pb.GetInfoRequest()


def test_a_call_beyond_the_rate_of_a_key_is_refused_with_the_time_to_retry(limited: Limited) -> None:
    limited.limit("calls_per_s = 5")
    greedy = limited.client()
    for _ in range(5):
        greedy.admin.GetInfo(ASK, timeout=CALL_S)
    refusal = refused(greedy.admin.GetInfo, ASK)
    assert told(refusal) == LIMITED
    assert refusal.info.retry_after_ms == 201
    assert "5 calls a second; retry after 201 ms" in refusal.info.message
    assert "calls_per_s of [greedy]" in refusal.info.action
    limited.other.admin.GetInfo(ASK, timeout=CALL_S)
    limited.clock.advance(201)
    greedy.admin.GetInfo(ASK, timeout=CALL_S)
    assert (limited.key().limited, limited.key().calls_per_s_max) == (1, 5)


@pytest.mark.slow
def test_refused_calls_get_turns_that_follow_each_other(limited: Limited) -> None:
    limited.limit("calls_per_s = 5")
    greedy = limited.client()
    for _ in range(5):
        greedy.admin.GetInfo(ASK, timeout=CALL_S)
    waits = [refused(greedy.admin.GetInfo, ASK).info.retry_after_ms for _ in range(30)]
    assert waits[:4] == [201, 401, 601, 801]
    assert waits[-1] == 5001, "no call is sent away for longer"


@pytest.mark.parametrize(("size", "held_s"), [(1_000, 0.5), (100_000, 0.0)])
def test_the_answer_to_a_refused_call_is_held_unless_its_request_is_large(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, size: int, held_s: float
) -> None:
    paused = list[float]()

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(authentication, "pause", pause)
    with contextlib.ExitStack() as stack:
        limited = Limited(stack, tmp_path, clock, "python")
        limited.limit("calls_per_s = 1")
        limited.broker.serving.reload()
        greedy = limited.client()
        greedy.admin.GetInfo(ASK, timeout=CALL_S)
        refusal = refused(greedy.broker.Send, pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=bytes(size))]))
        assert sum(paused) == held_s
        assert refusal.info.retry_after_ms == 1001 - held_s * 1000, "what it waited already is not asked for again"
        assert f"retry after {refusal.info.retry_after_ms} ms" in refusal.info.message


def test_a_key_at_its_limit_of_calls_can_still_settle_its_leases(limited: Limited) -> None:
    limited.other.send(b"a", b"b", b"c")
    limited.limit("calls_per_s = 2")
    greedy = limited.client()
    first, second, third = handles(greedy.pop(max_messages=3))
    greedy.admin.GetInfo(ASK, timeout=CALL_S)
    assert told(refused(greedy.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP))) == LIMITED
    assert [greedy.ack(first), greedy.ack(second)] == [[""], [""]]
    late = refused(greedy.broker.Ack, pb.AckRequest(group=GROUP, handles=[third]))
    assert told(late) == LIMITED, "one more second's calls, and not any number"


def test_an_official_client_is_answered_too_many_requests(limited: Limited) -> None:
    limited.limit("calls_per_s = 1")
    with V2(limited.broker.endpoint) as client:
        client.headers += signed(GREEDY)
        codes = [client.send(message()).status for _ in range(2)]
    assert [v2pb.Code.Name(status.code) for status in codes] == ["OK", "TOO_MANY_REQUESTS"]
    assert "retry after 1001 ms" in codes[1].message


def test_a_connection_too_many_is_refused_until_another_one_ends(limited: Limited, parked: Parked) -> None:
    limited.limit("connections = 2")
    first, second, third = limited.client(), limited.client(), limited.client()
    waiting = [client.pop_later() for client in (first, second)]
    parked.wait_for(2)
    refusal = refused(third.admin.GetInfo, ASK)
    assert told(refusal) == LIMITED
    assert "2 connections" in refusal.info.message
    second.admin.GetInfo(ASK, timeout=CALL_S)
    assert (limited.key().connections, limited.key().connections_max) == (2, 2)
    waiting[0].cancel()
    first.close()
    while limited.key().connections > 1:  # the broker sees the end of a connection when the system tells it
        pass
    third.admin.GetInfo(ASK, timeout=CALL_S)


@pytest.mark.slow
def test_bytes_in_flight_are_those_of_calls_that_are_not_answered(limited: Limited, parked: Parked) -> None:
    limited.limit("bytes_in_flight = '1KiB'")
    greedy = limited.client()
    large = pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=bytes(2_000))])
    greedy.broker.Send(large, timeout=CALL_S)
    greedy.pop(max_messages=9)
    waiting = greedy.pop_later()
    parked.wait_for(1)
    assert 0 < limited.key().bytes_in_flight < 100
    assert told(refused(greedy.broker.Send, large)) == LIMITED
    greedy.send(b"a small one")
    waiting.result()
    greedy.broker.Send(large, timeout=CALL_S)
    assert (limited.key().limited, limited.key().bytes_in_flight_max) == (1, 1024)


def test_new_limits_hold_at_once_for_streams_and_connections_that_are_open(limited: Limited) -> None:
    greedy = limited.client()
    greedy.admin.GetInfo(ASK, timeout=CALL_S)
    calls = limited.key().calls
    limited.limit("calls_per_s = 1\nconnections = 1")
    greedy.admin.GetInfo(ASK, timeout=CALL_S)
    assert told(refused(greedy.admin.GetInfo, ASK)) == LIMITED
    assert limited.key().calls == calls + 2, "what was counted before is kept"
    limited.limit("")
    greedy.admin.GetInfo(ASK, timeout=CALL_S)


def test_a_scrape_has_the_use_of_each_key(limited: Limited) -> None:
    limited.limit("calls_per_s = 1")
    greedy = limited.client()
    greedy.admin.GetInfo(ASK, timeout=CALL_S)
    refused(greedy.admin.GetInfo, ASK)
    registry = limited.broker.serving._metrics.registry
    label = {"access_key": GREEDY}
    assert registry.get_sample_value("popmq_access_key_calls_total", label) == 2
    assert registry.get_sample_value("popmq_access_key_limited_total", {**label, "limit": "calls_per_s"}) == 1
    assert registry.get_sample_value("popmq_access_key_connections", {"access_key": OTHER}) in (0, 1)
    assert registry.get_sample_value("popmq_access_key_bytes_in_flight", label) == 0
    assert registry.get_sample_value("popmq_refusals_total", {"code": "RATE_LIMITED"}) == 1


def test_answers_that_are_not_taken_count_as_bytes_in_flight() -> None:
    use, limits = KeyUse("a"), KeyLimits(bytes_in_flight=100)
    use.begins(limits, 10)
    use.bytes_in_flight += 90
    with pytest.raises(Refused, match="100 bytes in flight"):
        use.begins(limits, 1)


@pytest.mark.parametrize(
    "line",
    ["calls_per_s = 0", "calls_per_s = true", "connections = 1.5", "bytes_in_flight = 'much'", "connections = -1"],
)
def test_an_invalid_limit_is_refused_with_its_key(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys.toml"
    path.touch(0o600)
    path.write_text(f"[a]\nsecret = 'the secret of a'\nallow = []\n{line}")
    with pytest.raises(Exception, match=rf"\[a\]: {line.split()[0]}"):
        known_keys.Keys(path)


def test_answers_of_a_key_are_bounded_as_soon_as_they_are_read() -> None:
    use, limits = KeyUse("greedy"), KeyLimits(bytes_in_flight=100)
    use.reads(limits, 150)  # one answer may have any size
    with pytest.raises(Refused) as refused:
        use.reads(limits, 1)
    assert (refused.value.code, use.bytes_in_flight, use.limited["bytes_in_flight"]) == ("RATE_LIMITED", 150, 1)
