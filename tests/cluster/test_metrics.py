"""The metrics of a gateway: its page, and what they count."""

import asyncio
import re
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from harness.broker_process import ROOT, own_port
from popmq_server.clock import SystemClock
from popmq_server.monitoring.merging import SHARED, SUMMED
from popmq_server.options import Options
from popmq_server.process.serving import Serving
from tests.cluster.gateway import GROUP, TOPIC, created
from tests.remoting.fake.broker import FakeBroker
from tests.remoting.fake.cluster import FakeCluster
from tests.wire.stubs import CALL_S, Stubs

ROW = re.compile(r"^\| `(popmq_\w+)` \| (\w+) \| ([\w, ]*) ?\|", re.MULTILINE)
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
#: Names of gauges that have a number for each worker, since a sum of them says nothing.
BY_WORKER = {"popmq_broker_breaker_open", "popmq_broker_clock_ahead_seconds", "popmq_route_age_seconds"}


def scraped(port: int) -> tuple[dict[str, tuple[str, set[str]]], Samples]:
    """Name → (type, labels); and the samples."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=CALL_S) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    kinds, samples = {}, Samples()
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        kinds[name] = (family.type, labels)
        samples |= {(each.name, tuple(sorted(each.labels.items()))): each.value for each in family.samples}
    return kinds, samples


def documented() -> dict[str, tuple[str, set[str]]]:
    page = (ROOT / "docs" / "metrics.md").read_text().partition("## Gateways")[2]
    rows = ((name, kind, set(labels.replace(",", " ").split())) for name, kind, labels in ROW.findall(page))
    return {name: (kind, labels) for name, kind, labels in rows if not name.startswith("popmq_worker_")}


def used(endpoint: str) -> None:
    """Messages go through the gateway and back."""
    stubs = Stubs(endpoint)
    with stubs.channel:
        stubs.send(b"1", topic=TOPIC)
        stubs.pop(group=GROUP, topic=TOPIC)


async def test_the_page_and_a_gateway_name_the_same_metrics_and_they_count() -> None:
    port = own_port()
    fake = FakeCluster()
    fake.brokers["a"] = FakeBroker("a", now_ms=SystemClock().wall_ms)
    async with fake:
        created(fake)
        options = Options(engine="rocketmq", namesrv=tuple(fake.settings().name_servers), port=0, metrics_port=port)
        async with Serving(options, SystemClock()) as serving:
            assert await serving.waits_for() == ""
            await asyncio.to_thread(used, f"127.0.0.1:{serving.port}")
            kinds, samples = await asyncio.to_thread(scraped, port)
    ours = {name: kind for name, kind in kinds.items() if name in documented() or name.startswith("popmq_broker_")}
    assert ours == documented()
    a = ("broker", "a")
    assert samples["popmq_broker_info", (a, ("version", "V5_3_3"))] == 1
    assert samples["popmq_broker_calls_total", (a, ("code", "SUCCESS"))] >= 3
    assert samples["popmq_broker_call_seconds_count", (a,)] >= 3
    assert samples["popmq_broker_breaker_open", (a,)] == 0
    assert abs(samples["popmq_broker_clock_ahead_seconds", (a,)]) < 60
    assert 0 <= samples["popmq_route_age_seconds", ()] < 60
    assert samples["popmq_member_connections", ()] == 0


def test_each_gauge_of_a_gateway_is_summed_shown_once_or_has_its_worker() -> None:
    gauges = {name for name, (kind, _) in documented().items() if kind == "gauge"}
    once = {name for name in gauges if name.startswith(SHARED)}
    assert gauges == (gauges & SUMMED) | once | BY_WORKER
