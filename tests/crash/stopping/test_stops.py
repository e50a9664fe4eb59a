"""No call outlives its deadline, whenever a broker stops: clients of each kind call without a pause while it restarts.

A call that a stop meets in the moment between two frames may be repeated by its client on a connection that is about to
close. grpcio loses some of those: such a call has neither an answer nor an end.
"""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import popmq
from harness.stubs import OPTIONS
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_proto.v1 import popmq_pb2_grpc as rpc
from popmq_verify.process.broker_process import BrokerProcess
from tests.crash.conftest import Scale
from tests.wire.rocketmq.v2 import V2, message
from tests.wire.stubs import GROUP, TOPIC

#: The deadline of every call, the wait that it asks for, and how long after its deadline a call may end, in seconds.
DEADLINE_S, WAIT_S, LATE_S = 5.0, 4.0, 3.0
#: The same of the SDK, which adds the wait of a pop to its timeout.
TIMEOUTS = popmq.Timeouts(pop=DEADLINE_S - WAIT_S)
#: Between two stops; the load meets each one at another moment.
SERVED_S = 0.4
#: After a call that failed, in seconds: the others need the processor.
PAUSE_S = 0.02
#: Consumers of each kind.
CONSUMERS = 3


class Load:
    """The callers of one kind, on threads. `late`: seconds of the calls that ended too late; `running`: those begun."""

    def __init__(self, kind: str, endpoint: str) -> None:
        self.kind, self.endpoint = kind, endpoint
        self.stopping = threading.Event()
        self.calls: Counter[str] = Counter()
        self.late: list[float] = []
        self._running: dict[int, float] = {}

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Times a call, and takes the errors with which a call may end."""
        began, me, how = time.monotonic(), threading.get_ident(), "answered"
        self._running[me] = began
        try:
            yield
        except (grpc.RpcError, popmq.PopMQError, AssertionError) as error:
            how = type(error).__name__
            time.sleep(PAUSE_S)
        finally:
            del self._running[me]
            self.calls[how] += 1
            if time.monotonic() - began > DEADLINE_S + LATE_S:
                self.late.append(time.monotonic() - began)

    @property
    def hung(self) -> list[float]:
        """Seconds of the calls that are over their deadline, ended or not."""
        now = time.monotonic()
        return self.late + [now - began for began in list(self._running.values()) if now - began > DEADLINE_S + LATE_S]


def reconnecting(endpoint: str) -> V2:
    """A client that finds a restarted broker at once."""
    v2 = V2(endpoint)
    v2.channel.close()
    v2.channel = grpc.insecure_channel(endpoint, options=OPTIONS)
    return v2


def rocketmq(load: Load) -> None:
    with reconnecting(load.endpoint) as v2:
        while not load.stopping.is_set():
            with load.call():
                v2.receive(deadline_s=DEADLINE_S, poll_ms=int(WAIT_S * 1000))


def rocketmq_sends(load: Load) -> None:
    with reconnecting(load.endpoint) as v2:
        while not load.stopping.is_set():
            with load.call():
                v2.send(message())


def native(load: Load) -> None:
    with grpc.insecure_channel(load.endpoint, options=OPTIONS) as channel:
        broker: Any = rpc.BrokerStub(channel)
        asked = pb.PopRequest(topic=TOPIC, group="native", max_messages=4, wait_ms=int(WAIT_S * 1000))
        while not load.stopping.is_set():
            with load.call():
                broker.Pop(asked, timeout=DEADLINE_S)


def native_sends(load: Load) -> None:
    with grpc.insecure_channel(load.endpoint, options=OPTIONS) as channel:
        broker: Any = rpc.BrokerStub(channel)
        while not load.stopping.is_set():
            with load.call():
                broker.Send(pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=b"x")]), timeout=DEADLINE_S)


def sdk(load: Load) -> None:
    with popmq.Client(load.endpoint, timeouts=TIMEOUTS) as client:
        while not load.stopping.is_set():
            with load.call():
                client.pop(TOPIC, "sdk", wait=WAIT_S)


def sdk_async(load: Load) -> None:
    async def run() -> None:
        async with popmq.AsyncClient(load.endpoint, timeouts=TIMEOUTS) as client:
            while not load.stopping.is_set():
                with load.call():
                    await client.pop(TOPIC, "sdk-async", wait=WAIT_S)

    asyncio.run(run())


KINDS = (rocketmq, rocketmq_sends, native, native_sends, sdk, sdk_async)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", "--sync", "none") as broker:
        with popmq.Client(broker.endpoint) as client:
            client.topics.create(TOPIC)
            for group in (GROUP, "native", "sdk", "sdk-async"):
                client.groups.create(group)
        yield broker


@pytest.mark.mechanism("H.32")
@pytest.mark.chaos
@pytest.mark.smoke
def test_no_call_outlives_its_deadline_when_brokers_stop_under_load(
    broker: BrokerProcess, scale: Scale, show: Callable[[str], None]
) -> None:
    loads = [Load(kind.__name__, broker.endpoint) for kind in KINDS]
    threads = [
        threading.Thread(target=kind, args=(load,), daemon=True)  # a call that never ends keeps no test from ending
        for kind, load in zip(KINDS, loads, strict=True)
        for _ in range(1 if kind.__name__.endswith("sends") else CONSUMERS)
    ]
    for thread in threads:
        thread.start()
    stops, longest = scale.pick(short=6, whole=200), 0.0
    for stop in range(stops):
        time.sleep(SERVED_S + stop % 7 * 0.05)
        began = time.monotonic()
        broker.stop()
        longest = max(longest, time.monotonic() - began)
        broker.start()
    for load in loads:
        load.stopping.set()
    for thread in threads:
        thread.join(DEADLINE_S + LATE_S)
    show(table(stops, longest, loads))
    assert {load.kind: load.hung for load in loads if load.hung} == {}
    assert all(load.calls["answered"] > stops for load in loads), "a kind that was never served has shown nothing"


def table(stops: int, longest_s: float, loads: list[Load]) -> str:
    lines = [f"{stops} stops under load, the longest {longest_s:.2f} s", "| calls of | answered | failed | hung |"]
    lines += ["| --- | --: | --: | --: |"]
    for load in loads:
        failed = load.calls.total() - load.calls["answered"]
        lines.append(f"| {load.kind} | {load.calls['answered']:,} | {failed:,} | {len(load.hung)} |")
    return "\n".join(lines)
