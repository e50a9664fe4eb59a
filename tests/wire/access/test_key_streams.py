"""Open streams of an access key: they end with the key, and its limits hold for them."""

import contextlib
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.rocketmq import service_pb2 as v2rpc
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.access import access_keys, known_keys, open_streams
from popmq_server.protocols.access.access_keys import Key
from popmq_server.protocols.access.key_limits import KeyLimits
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.access.open_streams import OpenStreams
from popmq_server.protocols.rocketmq.service import RocketmqService
from tests.wire.access.signing import KeyedBroker, SignedStubs, secret_of, write_keys
from tests.wire.producer import DEALS
from tests.wire.rocketmq.v2 import resource
from tests.wire.stubs import CALL_S, read_refusal

HELLO = pb.SessionRequest(hello=pb.SessionHello(client_id="c", transaction_topics=[DEALS]))
SETTINGS = v2rpc.TelemetryCommand(settings=v2pb.Settings(publishing=v2pb.Publishing(topics=[resource(DEALS)])))
SERVICES = reflection_pb2.ServerReflectionRequest(list_services="")
#: The streams of all services: the path, the first message, and whether the client may send more.
STREAMS: dict[str, tuple[str, Any, bool]] = {
    "backup": ("/popmq.v1.Admin/Backup", pb.BackupRequest(bytes_per_s=1 << 20), False),
    "session": ("/popmq.v1.Broker/Session", HELLO, True),
    "telemetry": ("/apache.rocketmq.v2.MessagingService/Telemetry", SETTINGS, True),
    "health": ("/grpc.health.v1.Health/Watch", health_pb2.HealthCheckRequest(), False),
    "reflection": ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", SERVICES, True),
}


class Stream:
    """An open stream of `client`, that has had its first answer."""

    def __init__(self, client: SignedStubs, kind: str) -> None:
        path, first, more = STREAMS[kind]
        self._said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.say(first)
        if not more:
            self._said.put(None)
        call: Any = client.channel.stream_stream(path)
        headers = [("x-mq-client-id", "c")]
        self.answers: Any = call(iter(self._said.get, None), metadata=headers, timeout=CALL_S)
        assert next(self.answers) is not None

    def say(self, message: Any) -> None:
        self._said.put(message.SerializeToString())

    def refused(self) -> str:
        """The code with which the stream ends, after the answers that were under way."""
        with pytest.raises(grpc.RpcError) as error:
            list(self.answers)
        self._said.put(None)
        return read_refusal(error.value).code


class Broker(KeyedBroker):
    """A broker with the keys `root` and `one`."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, clock: FakeClock, transport: str) -> None:
        self.keys = folder / "keys.toml"
        self.write("[one]", "[root]")
        super().__init__(stack, folder, clock, transport)
        self.root = self.client("root")
        self.root.create_topic()
        self.root.create_topic(DEALS, type=pb.TRANSACTION)

    def write(self, *tables: str) -> None:
        """Replaces the file; a table without a secret gets that of its name."""
        draft = self.keys.with_suffix(".new")
        draft.touch(0o600)
        whole = (
            table if "secret" in table else f"{table}\nsecret = '{secret_of(table[1 : table.index(']')])}'"
            for table in tables
        )
        draft.write_text("".join(f"{table}\nallow = ['*']\n" for table in whole))
        draft.replace(self.keys)


@pytest.fixture(params=["python", "grpcio"])
def served(
    tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Broker]:
    monkeypatch.setattr(known_keys, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(open_streams, "LOOK_S", 0.01)
    with contextlib.ExitStack() as stack:
        yield Broker(stack, tmp_path, clock, request.param)


# ── The end of a key ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", STREAMS)
def test_a_removed_key_ends_its_streams_and_no_others(served: Broker, kind: str) -> None:
    if kind == "backup":  # one at a time, and long enough to be under way
        served.root.send(*[bytes(1 << 20)] * 4)
    other = None if kind == "backup" else Stream(served.root, kind)
    stream = Stream(served.client("one"), kind)
    served.write("[root]")
    assert stream.refused() == "UNAUTHENTICATED"
    if other is not None:
        assert other.answers.is_active()
        other.answers.cancel()


@pytest.mark.parametrize("kind", ["session", "telemetry", "health", "reflection"])
def test_a_key_ends_its_streams_at_its_time(served: Broker, kind: str) -> None:
    served.write("[one]\nexpires = 2023-11-14T23:00:00Z", "[root]")
    stream = Stream(served.client("one"), kind)
    served.clock.advance(3_600_000)
    assert stream.refused() == "UNAUTHENTICATED"


def test_a_key_that_loses_a_secret_loses_its_streams_and_one_that_gains_a_secret_does_not(served: Broker) -> None:
    stream = Stream(served.client("one"), "reflection")
    served.write(f"[one]\nsecret = ['{secret_of('one')}', 'another secret']", "[root]")
    assert len(served.root.admin.ListAccessKeys(pb.ListAccessKeysRequest(), timeout=CALL_S).access_keys) == 2
    stream.say(SERVICES)
    assert next(stream.answers)
    served.write("[one]\nsecret = 'another secret'", "[root]")
    assert stream.refused() == "UNAUTHENTICATED"


def test_a_client_that_takes_no_answers_loses_its_stream_too(served: Broker) -> None:
    """Its handler waits for the client, and not for a message."""
    stream = Stream(served.client("one"), "reflection")
    large = reflection_pb2.ServerReflectionRequest(file_containing_symbol="popmq.v1.Broker")
    for _ in range(100):
        stream.say(large)
    served.write("[root]")
    assert stream.refused() == "UNAUTHENTICATED"


# ── Its limits ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["session", "health", "reflection"])
def test_a_stream_belongs_to_the_connections_of_its_key(served: Broker, kind: str) -> None:
    served.write("[one]\nconnections = 2", "[root]")
    open_ones = [Stream(served.client("one"), kind) for _ in range(2)]
    path, first, _ = STREAMS[kind]
    call: Any = served.client("one").channel.stream_stream(path)
    with pytest.raises(grpc.RpcError) as error:
        list(call(iter([first.SerializeToString()]), timeout=CALL_S))
    assert read_refusal(error.value).code == "RATE_LIMITED"
    assert served.key().connections == 2
    for stream in open_ones:
        stream.answers.cancel()


def test_a_telemetry_stream_too_many_is_answered_with_the_limit(served: Broker) -> None:
    served.write("[one]\nconnections = 1", "[root]")
    stream = Stream(served.client("one"), "telemetry")
    call: Any = served.client("one").channel.stream_stream(STREAMS["telemetry"][0])
    (answer,) = call(iter([]), metadata=[("x-mq-client-id", "c")], timeout=CALL_S)
    assert v2pb.Code.Name(v2rpc.TelemetryCommand.FromString(answer).status.code) == "TOO_MANY_REQUESTS"
    stream.answers.cancel()


@pytest.mark.parametrize("kind", ["telemetry", "reflection"])
def test_messages_of_a_stream_are_calls_of_its_key(served: Broker, kind: str) -> None:
    stream = Stream(served.client("one"), kind)
    for _ in range(9):
        stream.say(STREAMS[kind][1])
        next(stream.answers)
    assert served.key().calls == 11, "the stream, its first message, and nine others"
    stream.answers.cancel()


def test_a_health_check_belongs_to_the_connections_of_its_key(served: Broker) -> None:
    served.write("[one]\nconnections = 1", "[root]")
    stream = Stream(served.client("one"), "health")
    check: Any = served.client("one").channel.unary_unary("/grpc.health.v1.Health/Check")
    with pytest.raises(grpc.RpcError) as error:
        check(b"", timeout=CALL_S)
    assert read_refusal(error.value).code == "RATE_LIMITED"
    stream.answers.cancel()


class Context:
    """What a handler needs of a call."""

    def __init__(self) -> None:
        self.over: list[Callable[[Any], object]] = []
        self.in_flight: list[int] = []

    def peer(self) -> str:
        return "ipv4:192.0.2.1:1"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("x-mq-client-id", "c"),)

    def time_remaining(self) -> None:
        return None

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        self.over.append(callback)

    async def write(self, message: bytes) -> None:
        key = access_keys.caller()
        assert key is not None
        self.in_flight.append(key.use.bytes_in_flight)


@pytest.fixture
def key(tmp_path: Path) -> Iterator[Key]:
    """The key of the caller: five calls a second, 100 bytes."""
    key = Key("one", [], [], limits=KeyLimits(calls_per_s=5, bytes_in_flight=100))
    before = access_keys.CALLER.set(key)
    yield key
    access_keys.CALLER.reset(before)


async def test_a_stream_with_too_many_messages_is_read_later(
    tmp_path: Path, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waits = FakeClock(), list[float]()

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(round(seconds * 1000))

    async def many() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"message"

    monkeypatch.setattr(open_streams, "pause", pause)
    write_keys(tmp_path / "keys.toml", {"root": ["*"]})
    stream = OpenStreams(Keys(tmp_path / "keys.toml", clock)).admitted(cast(Any, Context()))
    assert [message async for message in stream.messages(many())] == [b"message"] * 20
    assert 1.9 < sum(waits) < 2.1, "ten at once, since they end work, and five in each second after that"


async def test_a_message_of_a_stream_is_in_flight_while_it_is_handled_and_while_it_is_written(key: Key) -> None:
    async def two() -> AsyncIterator[bytes]:
        yield b"m" * 30
        yield b"m" * 40

    context: Any = Context()
    stream = OpenStreams(None).admitted(context, 7)
    seen = []
    async for _ in stream.messages(two()):
        seen.append(key.use.bytes_in_flight)
        await stream.write(b"a" * 10)
    assert (seen, context.in_flight) == ([37, 47], [47, 57])
    for callback in context.over:
        callback(context)
    assert key.use.bytes_in_flight == 0


async def test_a_unary_answer_to_an_official_client_is_in_flight_until_the_call_is_over(key: Key) -> None:
    async def method(request: Any, call: Any) -> bytes:
        return b"a" * 50

    anything: Any = None
    service = RocketmqService(
        anything, anything, FakeClock(), Metrics(), None, lambda _: None, lambda _, method: method, OpenStreams(None)
    )
    context: Any = Context()
    raw = v2rpc.QueryRouteRequest(topic=resource(DEALS)).SerializeToString()
    handle = service._unary("QueryRoute", method, v2rpc.QueryRouteRequest, v2rpc.QueryRouteResponse)
    assert await handle(raw, context) == b"a" * 50
    assert key.use.bytes_in_flight == len(raw) + 50
    for callback in context.over:
        callback(context)
    assert key.use.bytes_in_flight == 0
