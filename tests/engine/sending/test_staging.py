"""Staged messages: visible if and only if their batch was committed, each once, whatever is killed in between."""

from dataclasses import replace

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.sending import publishing, stages
from popmq_server.embedded.state import space
from popmq_server.errors import Refused
from popmq_server.values.outgoing import Outgoing
from tests.engine.conftest import MakeRig
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, message, numbered, parsed, refusal, refusals
from tests.engine.stages import commit, committing, dropping, left, stage, staging_of
from tests.engine.traffic.traffic_timing import delayed, later, make_topic, texts, timed_pair


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "BLOCK_MESSAGES_MAX", 4)
    monkeypatch.setattr(publishing, "PUBLISH_MESSAGES_MAX", 8)


# ── Stage, commit ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_staged_message_is_invisible_before_its_batch_is_committed(rig: Rig) -> None:
    rig.pair()
    stage(rig, "a", "1", "2")
    rig.restart()
    rig.advance(HOUR)
    assert (rig.pop(), texts(rig), rig.numbers().ready) == ([], [], 0)


def test_a_commit_publishes_its_stages_once_and_leaves_nothing(rig: Rig) -> None:
    rig.pair()
    stage(rig, "a", *numbered("a", 6))
    stage(rig, "a", *numbered("b", 5), piece=1)
    stage(rig, "c", "c")
    assert commit(rig, ("a", 11), ("c", 1)) == ask.BatchCommitted(12, False)
    assert texts(rig) == [*numbered("a", 6), *numbered("b", 5), "c"]
    assert left(rig) == [0, 0, 0]
    assert len(rig.pop()) == 12


def test_a_repeated_commit_is_a_duplicate_and_drops_what_was_staged_again(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", "1", batch=7)
    commit(rig, ("a", 1), batch=7)
    assert commit(rig, ("a", 1), batch=7) == ask.BatchCommitted(1, True)
    stage(rig, "b", "1", batch=7)
    assert commit(rig, ("b", 1), batch=7) == ask.BatchCommitted(1, True)
    assert commit(rig, batch=6) == ask.BatchCommitted(0, True), "an older batch, of a driver that lives on"
    assert (texts(rig), left(rig)) == (["1"], [0, 0, 0])


def test_an_empty_batch_is_remembered_too(rig: Rig) -> None:
    rig.topic()
    assert commit(rig, batch=3) == ask.BatchCommitted(0, False)
    stage(rig, "a", "1", batch=3)
    assert commit(rig, ("a", 1), batch=3).duplicate


def test_sinks_do_not_know_each_other(rig: Rig) -> None:
    rig.topic()
    commit(rig, batch=3)
    stage(rig, "a", "1", batch=3)
    assert refusal(rig.run(committing(("a", 1), batch=3, sink="other"))[0]) == "STAGE_NOT_FOUND"
    assert not commit(rig, batch=3, sink="other").duplicate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [(("a", 2), "has 1 messages, 2"), (("b", 1), "never existed")],
    ids=["a piece is missing", "unknown"],
)
def test_a_stage_that_is_not_whole_fails_the_whole_batch_and_changes_nothing(
    rig: Rig, name: tuple[str, int], why: str
) -> None:
    rig.topic()
    stage(rig, "ok", "0")
    stage(rig, "a", "1")
    before = left(rig)
    refused = rig.run(committing(("ok", 1), name))[0]
    assert (refused.code, refused.field) == ("STAGE_NOT_FOUND", "stages[1]")
    assert why in refused.message
    assert (left(rig), texts(rig)) == (before, [])
    assert commit(rig, ("ok", 1), ("a", 1)).messages == 2


def test_a_stage_of_another_batch_is_not_committed_with_this_one(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", "1", batch=1)
    assert refusal(rig.run(committing(("a", 1), batch=2))[0]) == "STAGE_NOT_FOUND"
    assert refusal(rig.run(staging_of("a", [message("2")], batch=2, piece=1))[0]) == "INVALID_FIELD"
    assert refusal(rig.run(committing(("a", 1), ("a", 1), batch=1))[0]) == "INVALID_FIELD"


def test_a_repeated_piece_is_stored_once(rig: Rig) -> None:
    rig.topic()
    assert [stage(rig, "a", "1", "2") for _ in range(3)] == [["", ""]] * 3
    assert commit(rig, ("a", 2)).messages == 2


def test_pieces_may_come_in_any_order_and_are_published_by_number(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", "2", piece=1)
    stage(rig, "a", "1", piece=0)
    commit(rig, ("a", 2))
    assert texts(rig) == ["1", "2"]


def test_a_refused_message_leaves_its_neighbours_alone(rig: Rig) -> None:
    rig.topic()
    entries: list[Outgoing | Refused] = [
        message("1"),
        Refused("INVALID_FIELD", "bad"),
        later("x", delay_ms=SECOND),
        later("h", transaction=True),
    ]
    assert refusals(rig.do(staging_of("a", entries))) == ["", *["INVALID_FIELD"] * 3]
    assert commit(rig, ("a", 1)).messages == 1


def test_a_commit_wakes_readers_and_follows_the_stage_in_one_group(rig: Rig) -> None:
    rig.topic()
    results = rig.run(committing(("a", 1)), staging_of("a", [message("1")]))
    assert refusal(results[0]) == "STAGE_NOT_FOUND", "in the order of their arrival"
    results = rig.run(staging_of("b", [message("1")]), committing(("b", 1)))
    assert results[1] == ask.BatchCommitted(1, False)
    assert rig.commit().woken == {(None, "t")}


# ── Kinds of topics ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_message_groups_keep_their_order_over_pieces_and_stages(rig: Rig) -> None:
    timed_pair(rig, "FIFO", 3)
    for batch, (stage_id, start) in enumerate((("a", 0), ("b", 10))):
        entries = [later(f"{start + n}", message_group="AB"[n % 2]) for n in range(10)]
        rig.do(staging_of(stage_id, entries, batch=batch))
        commit(rig, (stage_id, 10), batch=batch)
    rows = [row for queue in range(3) for row in rig.browse("t", queue).rows]
    seen = [int(parsed(row[0]).body) for row in rows]
    assert [n for n in seen if n % 2] == list(range(1, 20, 2))
    assert [n for n in seen if not n % 2] == list(range(0, 20, 2))


def test_delays_count_from_the_time_of_publishing(rig: Rig) -> None:
    timed_pair(rig)
    rig.do(staging_of("a", [later("1", delay_ms=10 * SECOND), later("2", due_ms=rig.now + HOUR), message("3")]))
    rig.advance(MINUTE)
    commit(rig, ("a", 3))
    assert (delayed(rig), texts(rig)) == (["1", "2"], ["3"])
    rig.advance(9 * SECOND)
    assert texts(rig) == ["3"]
    rig.advance(SECOND)
    assert texts(rig) == ["3", "1"]
    rig.advance(HOUR)
    assert texts(rig) == ["3", "1", "2"]


def test_priorities_choose_the_queue(rig: Rig) -> None:
    make_topic(rig, "t", "PRIORITY", 3)
    rig.do(staging_of("a", [later("low"), later("high", priority=2)]))
    commit(rig, ("a", 2))
    assert [len(rig.browse("t", queue).rows) for queue in range(3)] == [1, 0, 1]


def test_a_topic_with_unique_ids_stores_a_known_id_once(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, HOUR, "DELAY", unique_ids_ms=HOUR))
    rig.send("1")
    rig.do(staging_of("a", [message("1"), message("2"), message("2"), later("3", delay_ms=SECOND), message("3")]))
    commit(rig, ("a", 5))
    rig.advance(SECOND)
    assert texts(rig) == ["1", "2", "3"]


def test_lite_topics_and_dead_letter_topics_take_no_stages(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.CreateTopic("lite", 1, False, HOUR, "LITE"))
    codes = [refusal(rig.run(staging_of("a", [message("1")], topic=name))[0]) for name in ("lite", "%DLQ%g", "none")]
    assert codes == ["INVALID_FIELD", "TOPIC_NOT_FOUND", "TOPIC_NOT_FOUND"]


def test_a_topic_closed_for_sending_takes_no_stages_and_publishes_accepted_ones(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", "1")
    rig.do(ask.UpdateTopic("t", 0, None, (("permission", "READ_ONLY"),)))
    assert refusal(rig.run(staging_of("b", [message("2")]))[0]) == "FORBIDDEN"
    commit(rig, ("a", 1))
    assert texts(rig) == ["1"]


def test_the_quota_of_a_topic_counts_staged_messages_when_they_are_staged(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, HOUR, send_messages_per_s=2))
    assert stage(rig, "a", "1", "2") == ["", ""]
    assert refusal(rig.run(staging_of("b", [message("3")]))[0]) == "RATE_LIMITED"
    commit(rig, ("a", 2))
    assert len(texts(rig)) == 2


# ── Drops and bounds ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_dropped_stages_are_gone_and_nothing_else(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", *numbered("a", 9))
    stage(rig, "b", "b")
    assert rig.do(dropping("a", "unknown")) == 1
    rig.settle()
    assert left(rig) == [1, 1, 0]
    assert refusal(rig.run(committing(("a", 9)))[0]) == "STAGE_NOT_FOUND"
    commit(rig, ("b", 1))
    assert rig.do(dropping("b")) == 0, "what was committed is not dropped"
    assert texts(rig) == ["b"]


def test_a_commit_drops_stages_of_failed_tasks_and_of_earlier_batches(rig: Rig) -> None:
    rig.topic()
    stage(rig, "lost", "x", batch=1)
    stage(rig, "failed", "y", batch=2)
    stage(rig, "won", "z", batch=2)
    stage(rig, "next", "n", batch=3)
    commit(rig, ("won", 1), batch=2)
    assert (texts(rig), left(rig)) == (["z"], [1, 1, 0])
    commit(rig, ("next", 1), batch=3)
    assert texts(rig) == ["z", "n"]


def test_an_uncommitted_stage_ends_a_day_after_its_last_piece(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", "1")
    rig.advance(DAY - HOUR)
    stage(rig, "a", "2", piece=1)
    rig.advance(DAY - MINUTE)
    assert left(rig) == [1, 2, 0]
    rig.advance(2 * MINUTE)
    assert left(rig) == [0, 0, 0]
    assert refusal(rig.run(committing(("a", 2)))[0]) == "STAGE_NOT_FOUND"


def test_a_sink_is_remembered_for_90_days_after_its_last_batch(rig: Rig) -> None:
    rig.topic()
    commit(rig, batch=1)
    rig.advance(89 * DAY)
    assert commit(rig, batch=1).duplicate
    rig.advance(DAY + MINUTE)
    assert rig.read("batch") == []


def test_each_look_at_stages_is_bounded_and_reaches_all(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "TIDY_ROWS", 3)
    rig.topic()
    for number in range(10):
        stage(rig, f"{number}", "x")
    rig.advance(DAY + MINUTE)
    assert left(rig) == [0, 0, 0]


def test_stages_of_a_deleted_or_purged_topic_are_dropped(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", *numbered("a", 9))
    stage(rig, "b", "b", batch=1)
    rig.do(committing(("a", 9)))
    rig.do(ask.PurgeTopic("t"))
    rig.settle()
    assert refusal(rig.run(committing(("b", 1), batch=1))[0]) == "STAGE_NOT_FOUND"
    rig.advance(MINUTE)
    assert (texts(rig), left(rig)) == ([], [0, 0, 0])


@pytest.mark.slow
def test_a_clock_that_was_ahead_does_not_keep_a_stage_longer(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.topic()
    rig.skip(400 * DAY)
    stage(rig, "a", "1")
    commit(rig, batch=5, sink="other")
    rig.core.close()
    rig.clock = FakeClock()
    rig._start()
    rig.advance(DAY + 2 * MINUTE)
    assert left(rig) == [0, 0, 0]
    rig.advance(90 * DAY)
    assert rig.read("batch") == []


# ── Access keys ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sink_of_a_broker_without_access_keys_goes_to_the_next_key(rig: Rig) -> None:
    rig.topic()
    stage(rig, "a", "1", batch=1)
    commit(rig, ("a", 1), batch=1)
    assert rig.read("batch")[0][1][stages.BATCH.size :] == b"q", "as earlier releases wrote it"
    rig.do(replace(committing(batch=2), access_key="ours"))
    rig.restart()
    assert refusal(rig.run(replace(committing(batch=3), access_key="theirs"))[0]) == "PERMISSION_DENIED"
    rig.do(committing(batch=3))
    assert refusal(rig.run(replace(committing(batch=4), access_key="theirs"))[0]) == "PERMISSION_DENIED"
    assert rig.do(replace(committing(batch=3), access_key="ours")).duplicate


def test_a_commit_needs_room_for_the_row_of_its_sink(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.topic()
    stage(rig, "a", "1")
    with monkeypatch.context() as patched:
        patched.setattr(space.Room, "take", lambda *_: False)
        assert refusal(rig.run(committing(("a", 1)))[0]) == "STORAGE_FULL"
        assert rig.read("batch") == []
    assert commit(rig, ("a", 1)) == ask.BatchCommitted(1, False)
