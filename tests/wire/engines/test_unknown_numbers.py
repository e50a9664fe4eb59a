"""A number that an engine does not know is unset on the wire, None in the SDK, – for people, and no metric; never 0."""

from collections.abc import Iterator

import pytest

import popmq
from harness.broker_process import own_port
from popmq_cli.commands import popmq as command_line
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract import commands as do
from popmq_server.contract.capabilities import PULL
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.operations import A, Command
from popmq_server.monitoring.history import STEP_MS
from tests.engine.stub import UNKNOWN, StubEngine
from tests.wire.served import Served
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

#: Numbers of the messages below, of which one is leased.
READY = 2


class Pulling(StubEngine):
    """Tells offsets, too, but neither those of other groups nor who has read."""

    def info(self) -> EngineInfo:
        info = super().info()
        return info._replace(lacking=info.lacking - {PULL.name})

    async def execute(self, command: Command[A]) -> A:
        if isinstance(command, do.QueryOffsets):
            return [do.OffsetsOfQueue(0, 0, 3, 1, -1, least_committed=None, read_ms=None)]  # type: ignore[return-value]
        return await super().execute(command)


@pytest.fixture
def served(clock: FakeClock) -> Iterator[Served]:
    served = Served(clock, metrics_port=own_port())
    served.life.engine = Pulling(clock)
    with served, Stubs(served.endpoint) as stubs:
        stubs.create_topic(queues=1)
        stubs.create_group()
        stubs.send(b"a", b"b", b"c")
        stubs.pop(max_messages=1)
        stubs.broker.Heartbeat(pb.HeartbeatRequest(group=GROUP, client_id="c", topics=[TOPIC]), timeout=CALL_S)
        yield served


@pytest.fixture
def stubs(served: Served) -> Iterator[Stubs]:
    with Stubs(served.endpoint) as stubs:
        yield stubs


def test_on_the_wire_the_field_is_unset(stubs: Stubs, clock: FakeClock) -> None:
    clock.advance(STEP_MS)
    answer = stubs.admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S)
    (group,), (topic,), store = answer.groups, answer.topics, answer.store
    names = ["oldest_age_ms" if name == "oldest_ms" else name for name in UNKNOWN]
    assert (group.ready, [name for name in names if group.HasField(name)]) == (READY, [])
    assert (topic.messages, [name for name in ("bytes", "delayed", "half") if topic.HasField(name)]) == (3, [])
    known = {field.name for field, _ in store.ListFields()}
    assert known == {"used_bytes", "disk_free_bytes"}, "it counts no commits, and knows no limit"
    (offsets,) = stubs.broker.QueryOffsets(pb.QueryOffsetsRequest(topic=TOPIC, group=GROUP), timeout=CALL_S).queues
    assert (offsets.committed, offsets.HasField("least_committed"), offsets.HasField("read_ms")) == (1, False, False)
    (point,) = stubs.admin.GetHistory(pb.GetHistoryRequest(), timeout=CALL_S).points
    assert (point.backlog, point.retries) == (READY, 0), "of what is known"
    assert not any(map(point.HasField, ("bytes", "in_flight", "oldest_age_ms")))
    assert not any(map(point.broker.HasField, ("leases_late_ms", "delayed_late_ms")))
    (point,) = stubs.admin.GetHistory(pb.GetHistoryRequest(group=GROUP), timeout=CALL_S).points
    assert (point.backlog, point.HasField("in_flight"), point.HasField("oldest_age_ms")) == (READY, False, False)


def test_a_session_that_is_only_known_by_name_has_no_time_and_no_count(stubs: Stubs) -> None:
    asked = pb.ListSessionsRequest(group=GROUP, recent=True)
    rows = {row.client_id: row for row in stubs.admin.ListSessions(asked, timeout=CALL_S).sessions}
    assert [row.HasField("in_flight") for row in rows.values()] == [False] * len(rows)
    assert not rows["c"].HasField("last_seen_ms")


def test_in_the_sdk_it_is_none(served: Served, clock: FakeClock) -> None:
    clock.advance(STEP_MS)
    with popmq.Client(served.endpoint) as client:
        stats = client.broker.stats(TOPIC, GROUP)
        (group,) = stats.groups
        assert (group.ready, group.backlog, group.in_flight, group.oldest_age, group.read_ms) == (
            READY,
            READY,
            *[None] * 3,
        )
        assert (stats.topics[0].messages, stats.topics[0].bytes) == (3, None)
        assert (stats.store.used_bytes, stats.store.map_bytes, stats.store.commits) == (1 << 20, None, None)
        (offsets,) = client.offsets.query(TOPIC, GROUP)
        assert (offsets.committed, offsets.least_committed, offsets.read_ms) == (1, None, None)
        (session,) = client.sessions.list(GROUP)
        assert (session.last_seen_ms, session.in_flight) == (None, None)
        (point,) = client.broker.history().points
        assert (point.backlog, point.in_flight, point.bytes, point.oldest_age) == (READY, None, None, None)
        assert (point.leases_late, point.delayed_late) == (None, None)


def test_on_the_command_line_it_is_a_dash(served: Served, clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*command: str) -> list[dict[str, str]]:
        """The rows of a command by their headings."""
        with pytest.raises(SystemExit):
            command_line([*command, "--endpoint", served.endpoint], prog_name="popmq")
        rows, headings = [], list[str]()
        for line in capsys.readouterr().out.splitlines():
            cells = line.split("\t")
            if cells[0] in ("GROUP", "TOPIC", "USED", "QUEUE", "CLIENT", "NUMBER"):
                headings = cells
            rows.append(dict(zip(headings, cells, strict=False)))
        return rows

    clock.advance(STEP_MS)
    rows = [row for row in shown("stats") if TOPIC in row.values() or "1.0 MiB" in row.values()]
    group, topic, store = rows
    assert (group["READY"], group["IN FLIGHT"], group["OLDEST"]) == (str(READY), "–", "–")
    assert (topic["MESSAGES"], topic["BYTES"], topic["HALF"]) == ("3", "–", "–")
    assert (store["USED"], store["OF"], store["COMMITS"]) == ("1.0 MiB", "–", "–")
    assert shown("offsets", "show", TOPIC, GROUP)[-1]["ALL GROUPS"] == "–"
    assert shown("sessions", GROUP)[1]["IN FLIGHT"] == "–"
    lines = {row.get("NUMBER"): row for row in shown("history")}
    assert (lines["BACKLOG"]["NOW"], lines["IN FLIGHT"]["NOW"], lines["IN FLIGHT"]["MOST"]) == (str(READY), "–", "–")
    assert lines["IN FLIGHT"]["THE LAST HOUR"].strip() == ""


def test_the_metrics_leave_its_series_out(served: Served) -> None:
    text = served.scraped()
    labels = f'{{group="{GROUP}",topic="{TOPIC}"}}'
    assert f"popmq_group_ready{labels} {READY}.0" in text
    for name in ("in_flight", "filtered_total", "bytes_behind", "idle_seconds", "oldest_age_seconds", "dead_blocked"):
        assert f"popmq_group_{name}{{" not in text, name
    assert "popmq_topic_bytes{" not in text
