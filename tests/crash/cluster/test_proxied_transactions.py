"""Transactions through RocketMQ's own proxies whose every end is sent twice: only counted, beside test_transactions.py.

A producer is a client of apache.rocketmq.v2 with a telemetry stream, by which checks come. One that loses its
connection opens another one. Two deliveries of a message that are both a first attempt say that it was stored twice.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from harness.gateway_process import GatewayProcess
from harness.rocketmq_cluster import RocketMQCluster
from harness.rocketmq_proxy import ProxyProcess
from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from tests.crash.cluster.parts.callers import Failed
from tests.crash.cluster.parts.relay import Balancer
from tests.crash.cluster.parts.rig import Names, Record, made, resolution, v2
from tests.crash.conftest import Scale
from tests.wire.rocketmq.v2 import PREFIX, V2, message, resource

pytestmark = pytest.mark.chaos

PRODUCERS = 4
#: Checks come 6 s after a half message at the earliest, by the broker's transactionCheckInterval of 30 s.
SETTLED_S, QUIET_S = 120.0, 10.0
#: Between two tries of a producer whose connection is lost.
PAUSE_S = 0.05
RESOLUTIONS = {"commit": pb.COMMIT, "rollback": pb.ROLLBACK}


class Producer(threading.Thread):
    """Sends half messages, ends each of them twice, and answers the checks that come until `done` is set."""

    def __init__(self, endpoint: str, topic: str, number: int, count: int) -> None:
        super().__init__()
        self._endpoint, self._topic, self._number, self._count = endpoint, topic, number, count
        self.decided, self.begun = set[str](), set[str]()
        self.ends, self.checks = Counter[str](), Counter[str]()
        self.sent, self.done = threading.Event(), threading.Event()
        self._v2: V2 | None = None

    def run(self) -> None:
        for number in range(self._count):
            name = f"t{self._number}-{number}"
            self.decided.add(name)
            transaction_id = self._half(name)
            if transaction_id:
                self.begun.add(name)
                for _ in range(2):
                    self.ends[self._end(name, transaction_id)] += 1
        self.sent.set()
        while not self.done.wait(PAUSE_S):  # checks come to a client that is connected
            with contextlib.suppress(grpc.RpcError):
                self._connected().call("Heartbeat", client_type=pb.PRODUCER)
        self._leave()

    def _half(self, name: str) -> str:
        """The transaction id of a half message, which is sent once; "" if its send was not OK."""
        sent = message(name.encode(), self._topic, message_id=name, message_type=pb.TRANSACTION)
        sent.system_properties.born_timestamp.GetCurrentTime()
        try:
            answer = self._connected().send(sent)
        except grpc.RpcError:
            self._leave()
            return ""
        return answer.entries[0].transaction_id if answer.status.code == pb.OK else ""

    def _end(self, name: str, transaction_id: str) -> str:
        """The name of the code, or of the error of the connection."""
        try:
            return self._connected().code(
                "EndTransaction",
                topic=resource(self._topic),
                message_id=name,
                transaction_id=transaction_id,
                resolution=RESOLUTIONS[resolution(name)],
                source=pb.SOURCE_CLIENT,
            )
        except grpc.RpcError as error:
            self._leave()
            return type(error).__name__

    def _connected(self) -> V2:
        """Raises grpc.RpcError."""
        if self._v2 is None:
            opened = V2(self._endpoint, f"producer@{self._number}")
            try:
                self._listen(opened)
            except grpc.RpcError:
                opened.channel.close()
                time.sleep(PAUSE_S)
                raise
            self._v2 = opened
        return self._v2

    def _listen(self, opened: V2) -> None:
        """Tells the settings, and answers checks in a thread until the connection ends. Raises grpc.RpcError."""
        said: SimpleQueue[bytes] = SimpleQueue()
        stream: Any = opened.channel.stream_stream(PREFIX + "Telemetry")(iter(said.get, b""), metadata=opened.headers)
        endpoints = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=8081)])
        publishing = pb.Publishing(topics=[resource(self._topic)])
        settings = pb.Settings(client_type=pb.PRODUCER, access_point=endpoints, publishing=publishing)
        said.put(rpc.TelemetryCommand(settings=settings).SerializeToString())
        next(stream)
        threading.Thread(target=self._answer, args=(opened, stream), daemon=True).start()

    def _answer(self, opened: V2, stream: Iterator[bytes]) -> None:
        with contextlib.suppress(grpc.RpcError, ValueError):  # ValueError: the channel was closed
            for raw in stream:
                asked = rpc.TelemetryCommand.FromString(raw)
                if not asked.HasField("recover_orphaned_transaction_command"):
                    continue
                check = asked.recover_orphaned_transaction_command
                name = check.message.system_properties.message_id
                self.checks[name] += 1
                opened.code(
                    "EndTransaction",
                    topic=check.message.topic,
                    message_id=name,
                    transaction_id=check.transaction_id,
                    resolution=RESOLUTIONS[resolution(name)],
                    source=pb.SOURCE_SERVER_CHECK,
                )

    def _leave(self) -> None:
        if self._v2 is not None:
            self._v2.channel.close()
            self._v2 = None


class Consumer(threading.Thread):
    """Acks what comes, and counts first attempts by message and all others."""

    def __init__(self, endpoint: str, names: Names) -> None:
        super().__init__()
        self._caller, self._names = v2(endpoint, names.group)(), names
        self.first, self.again, self.done = Counter[str](), 0, threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            with contextlib.suppress(Failed):
                for taken in self._caller.pop(self._names.topic, self._names.group):
                    self.first[taken.message_id] += taken.attempt == 1
                    self.again += taken.attempt > 1
                    with contextlib.suppress(Failed):
                        taken.ack()
        self._caller.close()


def settled(consumer: Consumer, wanted: set[str]) -> Counter[str]:
    """How often each message came as a first attempt, once all that is wanted has come, or the time is over."""
    until_s = time.monotonic() + SETTLED_S
    while time.monotonic() < until_s and not wanted <= consumer.first.keys():
        time.sleep(0.5)
    time.sleep(QUIET_S)
    consumer.done.set()
    consumer.join()
    return consumer.first


def test_transactions_through_proxies_are_ended_twice(
    jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    count, chance, kills = scale.pick(short=400, whole=20_000), random.Random(scale.seed), 0
    with GatewayProcess(tmp_path / "maker.log", rocketmq.name_server) as gateway:
        names = made(gateway.endpoint, "TRANSACTION")
    with (
        ProxyProcess(tmp_path / "one", jars, rocketmq.name_server) as one,
        ProxyProcess(tmp_path / "other", jars, rocketmq.name_server) as other,
        Balancer((one.port, other.port)) as endpoint,
    ):
        producers = [Producer(endpoint, names.topic, number, count // PRODUCERS) for number in range(PRODUCERS)]
        consumer = Consumer(endpoint, names)
        for thread in (consumer, *producers):
            thread.start()
        while not all(producer.sent.is_set() for producer in producers):
            time.sleep(chance.uniform(2.0, 6.0))
            killed = (one, other)[kills % 2]
            killed.kill()
            killed.start()
            kills += 1
        decided = set().union(*(producer.decided for producer in producers))
        committed = {name for name in decided if resolution(name) == "commit"}
        begun = set().union(*(producer.begun for producer in producers)) & committed
        found = settled(consumer, begun)
        for producer in producers:
            producer.done.set()
            producer.join()
    ended = sum((producer.ends for producer in producers), Counter[str]())
    counts = {
        "transactions": len(decided),
        "ends": ended.total(),
        "ends_ok": ended["OK"],
        "checks": sum(producer.checks.total() for producer in producers),
        "kills": kills,
        "to_be_delivered": len(begun),
        "delivered": len(found),
        "lost": len(begun - found.keys()),
        "duplicates": sum(number - 1 for number in found.values() if number),
        "of_rolled_back": len(found.keys() - committed),
        "leases_over": consumer.again,
    }
    told = ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in counts.items())
    record("gateways are killed while transactions end twice", "RocketMQ's proxies", counts, told)
    assert kills > 0
    assert len(begun) > 100, "a campaign without load compares nothing"
