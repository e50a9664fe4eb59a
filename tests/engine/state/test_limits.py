"""The numbers that contract and documents promise, so that a slip in a constant is not carried into its own test."""

import logging

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.loop import long_poll
from popmq_server.embedded.rules.delivery import revive, token_pop
from popmq_server.embedded.rules.retention import kept
from popmq_server.embedded.rules.sending import dedup
from popmq_server.embedded.rules.topics import backlog, chunk
from popmq_server.embedded.state import owners, space
from popmq_server.embedded.writer import admitted, core, writer
from popmq_server.protocols.native import admin
from popmq_server.values import (
    limits,
    priority,
    records,
    turns,
)
from tests.engine.faults import Fault, failing
from tests.engine.rig import Rig, refusal, sending

KIB, MIB = 1 << 10, 1 << 20
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("what", "number"),
    [
        (chunk.CHUNK_BYTES_MAX, MIB),
        (chunk.BLOCK_ENTRIES_MAX, 4096),
        (dedup.DEDUP_KEEP_MS, 10 * MINUTE),
        (writer.BATCH_COMMANDS_MAX, 1000),
        (writer.BATCH_BYTES_MAX, 16 * MIB),
        (core.SAVE_TIME_MS, SECOND),
        (revive.REVIVE_MEMBERS_MAX, 1000),
        (turns.RETRY_FIRST_EVERY, 5),
        (priority.LOW_FIRST_EVERY, 10),
        (limits.QUEUES_PRIORITY, 10),
        (limits.UNIQUE_IDS_MS_MAX, DAY),
        (limits.BYTES_MAX_MIN, MIB),
        (admin.IN_FLIGHT_LIMIT_MAX, 1_000_000),
        (records.IN_FLIGHT_MAX, 10_000),
        (token_pop.OWNED_MAX, 1_000_000),
        (owners.OWNER_KEEP_MS, 7 * DAY),
        (limits.KEEP_MS_DEFAULT, 72 * HOUR),
        (limits.MAX_ATTEMPTS_DEFAULT, 17),
        (limits.INVISIBLE_MS_DEFAULT, 60 * SECOND),
        (kept.KEEP_COPY_AFTER_MS, HOUR),
        (long_poll.WAITERS_PER_KEY_MAX, 1024),
        (long_poll.WAITERS_MAX, 100_000),
        (admitted.ADMITTED_BYTES_MAX, 256 * MIB),
        (admitted.ADMITTED_COMMANDS_MAX, 100_000),
        (space.DISK_FREE_STORE, 256 * MIB),
        (space.DISK_FREE_GROW, 64 * MIB),
    ],
)
def test_each_limit_has_its_documented_value(what: int, number: int) -> None:
    assert what == number


def test_the_log_says_once_a_minute_that_sends_are_refused_and_when_that_is_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s, free = [1000.0], [0]
    rig.topic()
    monkeypatch.setattr(space, "stopwatch", lambda: now_s[0])
    monkeypatch.setattr(rig.store, "disk_free", lambda: free[0])
    caplog.set_level(logging.INFO, "popmq.space")

    def logged(after_s: float) -> list[str]:
        caplog.clear()
        now_s[0] += after_s
        rig.run(sending("a"))
        return [line.getMessage() for line in caplog.records if line.name == "popmq.space"]

    refused = ["sends are refused: the disk has 0 MiB left, and new messages need 256 MiB; acks have room"]
    assert [logged(after_s) for after_s in (1, 1, 58, 2)] == [refused, [], [], refused]
    free[0] = 1 << 40
    assert [logged(after_s) for after_s in (0.5, 1, 1)] == [[], ["sends are accepted again: there is room"], []]


def test_the_log_says_once_a_minute_that_large_sends_are_refused_while_small_ones_have_room(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [1000.0]
    rig.topic()
    monkeypatch.setattr(space, "stopwatch", lambda: now_s[0])
    monkeypatch.setattr(space, "PLENTY_BYTES", 1 << 60)
    monkeypatch.setattr(space.Space, "_leaves", lambda self: (self._fill.unused - 200_000, 0, 0, 0))
    said = []
    for after_s in (1, 1, 60, 1):
        now_s[0] += after_s
        assert refusal(rig.run(sending("x" * 300_000))[0]) == "STORAGE_FULL"
        rig.send("small")
        said.append(len(caplog.records))
    assert said == [1, 1, 2, 2]
    assert {line.getMessage().partition(":")[0] for line in caplog.records} == {"large sends are refused"}


def test_a_refusal_where_no_group_has_anything_to_do_names_the_topic_that_keeps_the_most(rig: Rig) -> None:
    rig.pair()
    assert backlog.greatest_backlog(rig.core.state) == ""
    rig.topic("small")
    rig.send("a", topic="small")
    rig.send("b" * 1000)
    rig.ack(rig.pop())
    assert backlog.greatest_backlog(rig.core.state).startswith("topic 't' keeps ")


def test_a_refusal_by_a_full_disk_does_not_advise_a_larger_limit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.pair()
    monkeypatch.setattr(rig.store, "disk_free", lambda: 0)
    with failing(rig.store, Fault.FULL):
        stored = rig.run(ask.SetMaxSize(1 << 40))[0]
    for refused in (rig.run(sending("a"))[0], stored):
        assert refusal(refused) == "STORAGE_FULL"
        assert "the disk" in refused.message
        assert "free space on the disk" in refused.action
        assert "max-size" not in refused.action


def test_sends_end_at_85_percent_of_the_map() -> None:
    assert space.STORE_LEAVES == 0.15
