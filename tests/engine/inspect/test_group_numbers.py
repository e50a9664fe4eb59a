"""Where groups stand, when they read last, how much is before them; and that a moved offset is reported."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.rules.pulling import offsets
from popmq_server.embedded.rules.topics import backlog
from popmq_server.embedded.state import events
from popmq_server.embedded.state.events import Event
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from tests.engine import work
from tests.engine.conftest import MakeRig
from tests.engine.pull_steps import commit, pull, pulling, reset
from tests.engine.rig import DAY, MINUTE, SECOND, Rig, numbered, sealing, sending
from tests.engine.traffic.traffic import group
from tests.known import known


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "popmq")


def rows(rig: Rig, group: str = "g", topic: str = "t") -> list[ask.OffsetsOfQueue]:
    return list(rig.do(ask.QueryOffsets(topic, group)))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "popmq.events"]


def told(rig: Rig, command: Any) -> list[Event]:
    return list(rig.commit(command).events)


# ── The least offset of all groups ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S2.50")
def test_the_least_offset_of_all_groups_is_reported_for_each_queue(rig: Rig) -> None:
    rig.topic(queues=2)
    assert [row.least_committed for row in rows(rig, "")] == [-1, -1]
    for name in ("g", "h"):
        rig.group(name)
        rig.do(ask.Available("t", name))
    for text in "abcd":
        rig.send(text)
    rig.pop(4, group="g")
    rig.do(ask.Pop("t", "h", (0,), 1))
    assert [row.least_committed for row in rows(rig, "")] == [1, 0]
    rig.do(ask.DeleteGroup("h"))
    assert [row.least_committed for row in rows(rig, "")] == [2, 2]


def test_a_query_of_offsets_costs_the_same_however_many_groups_read_the_topic(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "POSITIONS_MAX", 40)

    def read_by(groups: int) -> Rig:
        rig = make_rig(str(groups))
        rig.topic("t", 2)
        for name in numbered("g", groups):
            rig.group(name)
            rig.do(ask.Available("t", name))
        return rig

    few, many = read_by(30), read_by(300)
    assert work.grows(lambda: rows(few, "g0"), lambda: rows(many, "g0")) < 1.1


async def test_the_least_committed_offset_covers_all_groups_however_many_pieces_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "POSITIONS_MAX", 1)
    broker = EmbeddedEngine(Options(tmp_path / "data", max_size=1 << 28, sync="none"), FakeClock(), Metrics())
    await broker.execute(ask.CreateTopic("t", 1, False, DAY))
    for text in ("a", "b", "c"):
        await broker.execute(sending(text))
    assert [row.least_committed for row in await broker.execute(ask.QueryOffsets("t"))] == [-1]
    for name, offset in (("slow", 1), ("fast", 3), ("gone", 0), ("last", 2)):
        await broker.execute(group(name, 3))
        await broker.set_consume_mode(ask.SetConsumeMode("t", name, "PULL"))
        await broker.execute(ask.UpdateOffsets("t", name, {0: offset}))
    await broker.execute(ask.DeleteGroup("gone"))
    (row,) = await broker.execute(ask.QueryOffsets("t", "fast", 0))
    assert (row.committed, row.at_timestamp, row.least_committed) == (3, 0, 1)
    await broker.close()


# ── When a queue was read ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S0.10")
def test_the_last_pop_of_each_queue_is_kept_and_moves(rig: Rig) -> None:
    rig.topic(queues=3)
    rig.group()
    assert [row.read_ms for row in rows(rig)] == [0, 0, 0]
    rig.do(ask.Pop("t", "g", (1,)))
    first = rig.now
    assert [row.read_ms for row in rows(rig)] == [0, first, 0]
    rig.advance(SECOND)
    rig.do(ask.Pop("t", "g"))
    assert [row.read_ms for row in rows(rig)] == [rig.now] * 3, "a pop that names no queue looks at all"
    rig.advance(SECOND)
    rig.do(ask.Pop("t", "g", (2,)))
    assert [row.read_ms for row in rows(rig)] == [rig.now - SECOND, rig.now - SECOND, rig.now]
    rig.advance(SECOND)
    rig.do(ask.Pop("t", "g", (2,)))
    assert [row.read_ms for row in rows(rig)] == [rig.now - 2 * SECOND, rig.now - 2 * SECOND, rig.now], "it moves"


@pytest.mark.mechanism("S0.10")
def test_the_last_pull_of_each_queue_is_kept_and_is_of_its_group(rig: Rig) -> None:
    pulling(rig, queues=2).group("h")
    rig.do(ask.Pull("t", "g", 1, 0))
    rig.do(ask.Pull("t", "", 0, 0))
    assert [row.read_ms for row in rows(rig)] == [0, rig.now]
    assert [row.read_ms for row in rows(rig, "h")] == [0, 0]
    rig.advance(SECOND)
    rig.do(ask.Pull("t", "g", 1, 0))
    assert [row.read_ms for row in rows(rig)] == [0, rig.now]


def test_an_owners_pop_counts_as_a_read_and_a_restart_forgets_the_times_of_reads(rig: Rig) -> None:
    rig.pair()
    rig.attach()
    rig.advance(MINUTE)
    rig.do(sealing(1))
    assert rows(rig)[0].read_ms == rig.now
    rig.crash()
    assert rows(rig)[0].read_ms == 0


# ── Bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bytes_behind_are_the_mean_size_times_what_is_not_popped(rig: Rig) -> None:
    rig.pair(queues=2)
    for text in "abcdefgh":
        rig.send(text)
    size = known(rig.look(queries.Topics("t"))[0].bytes)
    assert rig.numbers().bytes_behind == size
    rig.pop(4)
    assert rig.numbers().bytes_behind == size // 2, "all of one size: exact"
    assert sum(row.bytes_behind for row in rows(rig)) == size // 2
    rig.pop(4)
    assert rig.numbers().bytes_behind == 0


def test_the_offsets_of_all_queues_take_one_count_of_the_messages_of_their_topic(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.pair(queues=8)
    rig.send("a")
    counted, original = 0, backlog.stored

    def stored(*given: Any) -> int:
        nonlocal counted
        counted += 1
        return original(*given)

    monkeypatch.setattr(backlog, "stored", stored)
    assert len(rows(rig)) == 8
    assert counted == 1


@pytest.mark.slow
def test_bytes_behind_cost_the_same_however_long_the_backlog(make_rig: MakeRig) -> None:
    def query(messages: int) -> Callable[[], object]:
        rig = make_rig(str(messages))
        rig.pair()
        for text in numbered("m", messages):
            rig.send(text)
        return lambda: rig.run(ask.QueryOffsets("t", "g"))

    assert work.grows(query(20), query(200)) < 1.1


# ── Moved offsets ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_offset_that_a_pull_has_to_correct_is_reported(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    pulling(rig).send("a", "b")
    (event,) = told(rig, ask.Pull("t", "g", 0, 12))
    assert event[:4] == ("offset_corrected", "g", "t", 0)
    assert lines(caplog) == [
        "a pull of group 'g' asked for offset 12 of queue 0 of topic 't', which has 0 to 2: it goes on at 2"
    ]
    assert told(rig, ask.Pull("t", "g", 0, 2)) == []
    assert pull(rig, 0).rows


def test_a_group_that_retention_moves_is_logged_with_its_dropped_messages(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.topic("t", by_age=True, keep_ms=MINUTE)
    rig.group()
    rig.pop()
    rig.send("a", "b", "c")
    rig.ack(rig.pop(1))
    rig.advance(10 * MINUTE)
    assert rig.numbers().dropped == 2
    assert any("retention moved group 'g' in queue 0 of topic 't' from offset 1 to 3" in line for line in lines(caplog))


def test_a_reset_is_reported_with_where_it_was_and_is(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    pulling(rig).send("a", "b", "c")
    commit(rig, 3)
    reset(rig, ("EARLIEST", 0))
    assert lines(caplog) == ["the offsets of group 'g' in topic 't' were reset: queue 0 3 → 0"]
    reset(rig, ("EARLIEST", 0))
    assert len(lines(caplog)) == 1, "nothing moved"
    rig.group("h")
    rig.do(ask.CloneOffsets("t", "g", "h"))
    assert len(lines(caplog)) == 1


def test_a_client_that_asks_wrongly_all_the_time_does_not_fill_the_log(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    pulling(rig).send("a")
    for _ in range(50):
        assert len(told(rig, ask.Pull("t", "g", 0, 9))) == 1, "the metric counts each"
    rig.skip(events.QUIET_MS)
    told(rig, ask.Pull("t", "g", 0, 9))
    assert len(lines(caplog)) == 2
    assert lines(caplog)[1].endswith("(and 49 more like this before)")


def test_a_command_that_is_undone_tells_nothing(rig: Rig) -> None:
    pulling(rig).send("a")
    assert told(rig, ask.ResetOffsets("t", "nobody", ("EARLIEST", 0))) == []
    rig.advance(DAY)
