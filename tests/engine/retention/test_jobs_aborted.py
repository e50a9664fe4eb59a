"""A piece of a job whose transaction was aborted runs again: jobs keep in memory only what is on disk."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from popmq_server import commands as ask
from popmq_server.sending import staging
from popmq_server.state.jobs import Job, Timed
from popmq_server.storage.keys import TOPIC_AT, U32
from popmq_server.topics.topic import IDX_HEAD
from popmq_server.writer import housekeeping
from tests.engine.rig import MINUTE, Rig


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")


def fill(rig: Rig, *topics: str) -> None:
    """Sends a message to each topic, and acks it."""
    for topic in topics:
        rig.send("x", topic=topic)
        rig.ack(rig.pop(topic=topic))


def minutes(rig: Rig, count: int, *commands: Any, topics: tuple[str, ...] = ("t",)) -> None:
    """Each minute a message comes and goes; the commands are in each batch with a due job."""
    for _ in range(count):
        fill(rig, *topics)
        rig.skip(MINUTE)
        while rig.due:
            rig.commit(*commands)


def test_retention_goes_on_beside_a_job_that_fails_each_minute(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bool:
        raise ValueError("a defect")

    monkeypatch.setattr(staging.Tidying, "run", broken)
    rig.topic("t", keep_ms=MINUTE)
    rig.group()
    rig.pop()
    minutes(rig, 10)
    assert set(rig.failures) == {"stages"}
    assert len(rig.read("log")) <= 2


def test_retention_goes_on_beside_commands_that_are_refused_after_they_wrote(rig: Rig) -> None:
    rig.topic("t", keep_ms=MINUTE)
    rig.topic("pulled")
    rig.group()
    rig.group("reader")
    rig.pop()
    rig.do(ask.SetConsumeMode("pulled", "reader", "PULL", 0))
    minutes(rig, 10, ask.Pull("pulled", "reader", 0, 0, commit_offset=99))
    assert rig.failures == []
    assert len(rig.read("log")) <= 2


def test_a_topic_that_cannot_be_read_does_not_stop_the_retention_of_others(rig: Rig) -> None:
    made = [rig.topic(name, keep_ms=MINUTE) for name in ("bad", "good")]
    rig.group()
    for topic in made:
        rig.pop(topic=topic.name)
    fill(rig, "bad", "good")
    (key, value) = next(row for row in rig.read("idx") if row[0].startswith(U32.pack(made[0].topic_id)))
    rig.write(lambda kv: kv.put("idx", key, value[: IDX_HEAD.size - 1]))
    minutes(rig, 10, topics=("good",))
    left = [TOPIC_AT.unpack(key)[0] for key, _ in rig.read("idx")]
    assert left.count(made[1].topic_id) <= 2
    rig.write(lambda kv: kv.put("idx", key, value))


@pytest.mark.parametrize("job", housekeeping.jobs(0), ids=lambda job: job.name)
def test_an_aborted_piece_leaves_a_job_where_it_was(rig: Rig, job: Job) -> None:
    rig.pair()
    fill(rig, "t")
    tx = rig.core._begin()
    job.begun()
    before = job.place()
    job.step(tx, Timed([], [], [], []))
    tx.abort()
    job.aborted()
    assert job.place() == before
    assert not job.stepped
