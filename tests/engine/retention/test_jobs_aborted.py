"""A piece of a job whose transaction was aborted runs again: jobs keep in memory only what is on disk."""

import copy
import logging
from collections import deque
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.sending import check_back, stages
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD
from popmq_server.embedded.state.jobs import Job, Timed
from popmq_server.embedded.store.keys import DATABASES, TOPIC_AT, U32
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.writer import housekeeping
from tests.engine.rig import DAY, HOUR, MINUTE, Rig, bodies
from tests.engine.traffic.traffic_timing import halves, later, send


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


def refused_late(rig: Rig) -> ask.Pull:
    """A command that is refused after it wrote, behind the jobs of its batch."""
    rig.topic("pulled")
    rig.group("reader")
    rig.do(ask.SetConsumeMode("pulled", "reader", "PULL", 0))
    return ask.Pull("pulled", "reader", 0, 0, commit_offset=99)


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job fails each minute."""

    def broken(*_: object) -> bool:
        raise ValueError("a defect")

    monkeypatch.setattr(stages.Tidying, "run", broken)


def idle(rig: Rig, count: int) -> None:
    """Minutes in which no message comes."""
    for _ in range(count):
        rig.skip(MINUTE)
        rig.settle()


@pytest.mark.parametrize("beside", ["a job that fails", "commands that are refused after they wrote"])
def test_retention_goes_on_beside_what_is_undone_each_minute(
    rig: Rig, beside: str, request: pytest.FixtureRequest
) -> None:
    rig.topic("t", keep_ms=MINUTE)
    rig.group()
    rig.pop()
    if beside == "a job that fails":
        request.getfixturevalue("defect")
        minutes(rig, 10)
    else:
        minutes(rig, 10, refused_late(rig))
    assert set(rig.failures) == ({"stages"} if beside == "a job that fails" else set())
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


@pytest.mark.usefixtures("defect", "a_chunk_a_commit")
def test_live_records_are_copied_beside_a_job_that_fails_each_minute(rig: Rig) -> None:
    rig.topic("t", keep_ms=MINUTE)
    rig.group()
    rig.pop()
    for number in range(3):
        rig.send(*(f"{number}{letter}" for letter in "abcde"))
        rows = rig.pop()
        rig.ack(rows[1:])
        rig.release(rows[:1], delay_ms=3 * HOUR)
    idle(rig, 120)
    assert len(rig.read("kept")) == 3
    idle(rig, 61)
    assert bodies(rig.pop()) == ["0a", "1a", "2a"]


def test_old_half_messages_are_given_up_beside_commands_that_are_refused_after_they_wrote(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic with an old one is in the first piece of each search."""
    monkeypatch.setattr(check_back, "TOPICS_AT_ONCE", 1)
    for name in ("old", "young"):
        rig.do(ask.CreateTopic(name, 1, False, DAY, "TRANSACTION"))
    refused = refused_late(rig)
    send(rig, later("a", transaction=True), topic="old")
    rig.advance(check_back.HALF_KEEP_MS - MINUTE // 2)
    send(rig, later("b", transaction=True), topic="young")
    minutes(rig, 5, refused, topics=())
    assert halves(rig) == ["b"]


def test_a_copy_that_cannot_be_dropped_does_not_stop_retention(rig: Rig) -> None:
    rig.topic("t", by_age=True, keep_ms=HOUR)
    rig.topic("good", keep_ms=MINUTE)
    rig.group()
    for topic in ("t", "good"):
        rig.pop(topic=topic)
    rig.send("a", "b", "c")
    rig.reject(rig.pop())
    rig.do(operations.RedrivePiece("g"))
    rows = rig.pop(invisible_ms=12 * HOUR)
    rig.ack(rows[1:])
    idle(rig, 180)
    ((key, _),) = rig.read("kept")

    def spoil(kv: Transaction) -> None:
        plain = Transaction(kv._txn, kv._db, bare=frozenset(DATABASES))
        stored = bytearray(plain.get("kept", key) or b"")
        stored[0] ^= 0x55
        plain.put("kept", key, bytes(stored))

    rig.ack(rows[:1])
    rig.write(spoil)
    minutes(rig, 10, topics=("good",))
    assert len(rig.read("bare")) == 1
    assert len(rig.read("log")) <= 3
    rig.write(spoil)
    idle(rig, 2)
    assert rig.read("bare") == []


#: What a job may keep of an aborted piece: counts and times that it would find again, and its own bounds.
HARMLESS = {"_job", "_phases", "_left", "_used", "_used_before", "_expired", "_tails", "alone"}


def memory(thing: Any) -> Any:
    """What a job and the walks in it remember."""
    if isinstance(thing, deque):
        return list(thing)
    if not type(thing).__module__.startswith("popmq_server"):
        return thing
    return {name: memory(value) for name, value in vars(thing).items() if name not in HARMLESS and not callable(value)}


@pytest.mark.parametrize("job", [*housekeeping.jobs(0), check_back.CheckingBack()], ids=lambda job: job.name)
def test_an_aborted_piece_leaves_a_job_where_it_was(rig: Rig, job: Job) -> None:
    rig.pair()
    fill(rig, "t")
    before = copy.deepcopy(memory(job))
    tx = rig.core._begin()
    job.begin(tx)
    job.step(tx, Timed([], [], [], []))
    tx.abort()
    assert memory(job) == before
    assert not job.stepped
