"""What the tests of the campaign stand on: two gateways behind a balancer, and verdicts of a load."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import popmq
from harness.gateway_process import GatewayProcess
from popmq_remoting import Cluster, ClusterSettings
from popmq_remoting.requests import groups, topics
from tests.crash.cluster.parts.callers import Caller, SdkCaller, V2Caller
from tests.crash.cluster.parts.judging import Judged, judged
from tests.crash.cluster.parts.load import Load
from tests.crash.cluster.parts.relay import Balancer

QUEUES = 8
#: One transaction in so many is rolled back.
ROLLED_BACK = 4
#: Leases that nobody acks end after 20 s, and come back within 6 s; a broker registers 10 s after it listens.
DRAIN_S = 90.0
#: Masters register again within 30 s, and a broker is asked for in time by its own heartbeats.
CHANGED_S = 60.0

Kind = Literal["NORMAL", "TRANSACTION"]
#: Where a row of the table is kept: fault, doors, counts, and the counts in words.
Record = Callable[[str, str, Mapping[str, float], str], None]


class Names(NamedTuple):
    """Topics and groups of one test: all tests share a cluster."""

    topic: str
    group: str
    fifo: str
    fifo_group: str


class Doors(NamedTuple):
    """`endpoint`: of the balancer. `secret`: the file that the gateways share."""

    gateways: list[GatewayProcess]
    endpoint: str
    secret: Path
    names: Names


@contextmanager
def doors(folder: Path, name_server: str, *, in_turn: bool = True, type: Kind = "NORMAL") -> Iterator[Doors]:
    """Two gateways with one secret, and the balancer before them; a topic of the type and a FIFO one, with groups."""
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("a secret that both gateways share\n")
    flags = ("--handle-secret", str(secret))
    with (
        GatewayProcess(folder / "one.log", name_server, *flags) as one,
        GatewayProcess(folder / "other.log", name_server, *flags) as other,
        Balancer((one.port, other.port), in_turn=in_turn) as endpoint,
    ):
        yield Doors([one, other], endpoint, secret, made(endpoint, type))


def made(endpoint: str, type: Kind = "NORMAL") -> Names:
    """New topics and groups, made by a gateway."""
    own = uuid.uuid4().hex[:8]
    names = Names(f"orders-{own}", f"bill-{own}", f"steps-{own}", f"follow-{own}")
    with popmq.Client(endpoint) as client:
        client.topics.create(names.topic, queues=QUEUES, type=type)
        client.topics.create(names.fifo, queues=QUEUES, type="FIFO")
        client.groups.create(names.group, max_attempts=100)
        client.groups.create(names.fifo_group, max_attempts=100, fifo=True)
    return names


def sdk(endpoint: str, tries: int = 1) -> Callable[[], Caller]:
    """Clients of the SDK. `tries`: of a call; a send that is tried once stores no id twice. 0: until its timeout."""
    return lambda: SdkCaller(endpoint, popmq.Retry(tries=tries))


def v2(endpoint: str, group: str, tries: int = 1) -> Callable[[], Caller]:
    """Clients of apache.rocketmq.v2. `tries`: of a send whose connection fails; 0: until its timeout."""
    numbers = iter(range(1_000))
    return lambda: V2Caller(endpoint, group, f"caller-{group}@{next(numbers)}", tries=tries)


def load(open_: Doors, tries: int = 1) -> Load:
    """Clients of the SDK, with the topic and the group of the doors."""
    return Load(sdk(open_.endpoint, tries), open_.names.topic, open_.names.group)


def ordered(open_: Doors) -> Load:
    """The same with message groups, whose sends are repeated until they are OK."""
    names = open_.names
    caller = sdk(open_.endpoint, tries=0)
    return Load(caller, names.fifo, names.fifo_group, producers=1, consumers=2, message_groups=8)


def resolution(name: str) -> popmq.transaction.Resolution:
    """How a transaction ends, by the name of its message, which ends with a number."""
    return "rollback" if int(name.rpartition("-")[2]) % ROLLED_BACK == 0 else "commit"


def report(
    load_: Load, record: Record, fault: str, what: str = "gateways", more: Mapping[str, float] | None = None
) -> Judged:
    """The verdict, which is shown and kept; no OK send may be lost. `what`: the doors. `more`: counts of the test's."""
    verdict = judged(load_.histories)
    told = "".join(f"; {name.replace('_', ' ')} {number:,g}" for name, number in (more or {}).items())
    record(fault, what, verdict.counts() | dict(more or {}), verdict.row() + told)
    assert verdict.sent > 100, "a campaign without load proves nothing"
    assert verdict.lost == []
    return verdict


def wait_until(holds: Callable[[], bool], what: str, within_s: float = CHANGED_S) -> float:
    """Seconds until it holds. Raises AssertionError."""
    began_s = time.monotonic()
    while not holds():
        assert time.monotonic() - began_s < within_s, f"within {within_s} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began_s


def knows(port: int, names: Names) -> bool:
    """Whether the broker at a port has the topics and the groups: replicas get them from their master in time."""

    async def asked() -> bool:
        cluster = Cluster(ClusterSettings(["127.0.0.1:1"], "campaign"))
        peer = cluster.peer(f"127.0.0.1:{port}")
        try:
            until_s = asyncio.get_running_loop().time() + 3.0
            pieces = topics.topic_pieces(await peer.call(topics.all_topics(), until_s))
            found = {name for some in pieces for name in some}
            known = groups.group_table(await peer.call(groups.all_groups(), until_s)).keys()
            return {names.topic, names.fifo} <= found and {names.group, names.fifo_group} <= known
        finally:
            await cluster.close()

    return asyncio.run(asked())


def masters(name_server: str) -> dict[str, str]:
    """The address of each broker's master, as the name server has it."""

    async def asked() -> dict[str, str]:
        cluster = Cluster(ClusterSettings([name_server], "campaign"))
        try:
            route = await cluster.brokers(asyncio.get_running_loop().time() + 3.0)
            return {name: broker.master for name, broker in route.brokers.items() if broker.master}
        finally:
            await cluster.close()

    return asyncio.run(asked())
