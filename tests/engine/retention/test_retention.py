"""Retention: chunks go when their time has come, and nothing that is still needed goes with them."""

import itertools

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import lease_history
from popmq_server.embedded.rules.retention import chunks as chunks_of_the_log
from popmq_server.embedded.rules.retention import retention
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import history_rows
from popmq_server.embedded.store.keys import U64
from popmq_server.embedded.writer.housekeeping import Retaining
from tests.engine.rig import HOUR, KEEP, MINUTE, SECOND, Rig, bodies, parsed, refusals

#: What goes, goes by chunks: these tests say which by sending one by one.
pytestmark = pytest.mark.usefixtures("a_chunk_a_commit")


def minutes(rig: Rig, count: int) -> None:
    """Housekeeping looks once a minute."""
    for _ in range(count):
        rig.advance(MINUTE)


def later(rig: Rig, ms: int) -> None:
    """Housekeeping looks, a long time passes in one step, and housekeeping looks twice."""
    minutes(rig, 1)
    rig.advance(ms)
    minutes(rig, 2)


def chunks(rig: Rig) -> int:
    return len(rig.read("log"))


def sent_one_by_one(rig: Rig, *texts: str) -> None:
    for text in texts:
        rig.send(text)


# ── When ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_is_kept_for_72_hours_after_every_group_has_finished_it(rig: Rig) -> None:
    rig.topic()
    rig.group("g")
    rig.group("slow")
    sent_one_by_one(rig, "a", "b")
    rig.ack(rig.pop())
    rig.pop(1, group="slow")
    later(rig, 2 * KEEP)
    rows = rig.pop(group="slow")
    assert sorted(bodies(rows)) == ["a", "b"], "the slow group was done with none of them"
    rig.ack(rows, group="slow")
    later(rig, KEEP - 5 * MINUTE)
    assert chunks(rig) == 1
    minutes(rig, 5)
    assert chunks(rig) == 0


def test_a_topic_without_groups_keeps_its_messages_for_their_time(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.send("a")
    later(rig, HOUR - 5 * MINUTE)
    assert chunks(rig) == 1
    minutes(rig, 5)
    assert chunks(rig) == 0


@pytest.mark.mechanism("S2.17")
def test_retention_by_age_drops_unread_messages_and_counts_them(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group("g")
    rig.group("never")
    rig.pop()
    rig.pop(group="never")
    sent_one_by_one(rig, "a", "b")
    rig.ack(rig.pop())
    later(rig, HOUR)
    assert chunks(rig) == 0
    assert (rig.numbers("g").dropped, rig.numbers("never").dropped) == (0, 2)
    assert (rig.numbers("never").ready, rig.pop(group="never")) == (0, [])


@pytest.mark.mechanism("S2.05")
@pytest.mark.slow
def test_the_first_readable_offset_follows(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    sent_one_by_one(rig, "a", "b")
    rig.advance(30 * MINUTE)
    rig.send("c")
    later(rig, 31 * MINUTE)
    page = rig.browse("t")
    assert (page.min_offset, page.max_offset, page.next_offset) == (2, 3, 3)
    rig.restart()
    assert rig.browse("t").min_offset == 2
    rig.group()
    assert [(row.body, row.offset) for row in rig.pop()] == [("c", 2)]


def test_offsets_go_on_after_everything_was_dropped_and_the_broker_was_restarted(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    sent_one_by_one(rig, "a", "b")
    later(rig, HOUR)
    rig.restart()
    assert rig.send("c").first == 2
    assert rig.read("log")[0][0] > U64.pack(0), "positions are never given twice"


def test_offsets_go_on_when_the_last_chunk_was_dropped_and_an_earlier_one_is_held(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group()
    sent_one_by_one(rig, "a", "b")
    rows = rig.pop(invisible_ms=12 * HOUR)
    rig.ack(rows[1:])
    later(rig, HOUR + MINUTE)
    assert [row.body for row in rows[:1]] == [parsed(row[0]).message_id for row in rig.browse("t").rows]
    rig.restart()
    assert rig.send("c").first == 2
    assert bodies(rig.pop()) == ["c"]


def test_retention_can_be_changed_while_messages_are_stored(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group()
    rig.pop()
    rig.send("a")
    later(rig, 2 * HOUR)
    assert chunks(rig) == 1
    rig.do(ask.UpdateTopic("t", 0, (True, HOUR)))
    minutes(rig, 2)
    assert chunks(rig) == 0
    assert rig.numbers().dropped == 1


def test_marks_that_are_no_longer_needed_go(rig: Rig) -> None:
    rig.topic(keep_ms=10 * MINUTE)
    rig.group()
    for text in "abcdefghij":
        rig.send(text)
        rig.ack(rig.pop())
        minutes(rig, 2)
    minutes(rig, 20)
    assert chunks(rig) == 0
    assert len(rig.read("mark")) <= 2


def test_a_large_backlog_is_dropped_in_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "LOOKS_MAX", 150)
    rig.topic(by_age=True, keep_ms=HOUR)
    sent_one_by_one(rig, *(str(number) for number in range(35)))
    rig.skip(HOUR + MINUTE)
    left = [chunks(rig)]
    while rig.due:
        rig.run()
        left.append(chunks(rig))
    assert left[-1] == 0
    assert all(before - after <= 10 for before, after in itertools.pairwise(left))


# ── What is held ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chunk_that_a_lease_points_into_is_skipped_and_the_next_one_is_not(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group()
    sent_one_by_one(rig, "a", "b", "c")
    a, b, c = rig.pop(invisible_ms=12 * HOUR)
    rig.ack([a, c])
    later(rig, HOUR + MINUTE)
    assert chunks(rig) == 1
    rig.ack([b])
    minutes(rig, 2)
    assert chunks(rig) == 0


@pytest.mark.parametrize("delay_ms", [0, 12 * HOUR], ids=["retry", "backoff"])
def test_a_chunk_that_a_released_message_lies_in_is_skipped(rig: Rig, delay_ms: int) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group()
    sent_one_by_one(rig, "a", "b")
    rows = rig.pop()
    rig.ack(rows[1:])
    rig.release(rows[:1], delay_ms=delay_ms)
    later(rig, HOUR + MINUTE)
    assert chunks(rig) == 1
    rig.restart()
    minutes(rig, 2)
    assert chunks(rig) == 1


@pytest.mark.parametrize("how", ["leased", "retry", "backoff", "owned"])
def test_a_chunk_held_for_an_hour_past_its_time_leaves_only_what_is_needed(rig: Rig, how: str) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group()
    rig.send("a" * 1000, "b", "c" * 1000)
    if how == "owned":
        rig.attach(lease_ms=12 * HOUR)
        rig.seal(1, max_messages=1)
        rig.ack(rig.pop())
    else:
        rows = rig.pop(invisible_ms=12 * HOUR)
        rig.ack([rows[0], rows[2]])
    if how in ("retry", "backoff"):
        rig.release(rows[1:2], delay_ms=0 if how == "retry" else 11 * HOUR)
    later(rig, 3 * HOUR)
    assert chunks(rig) == 0
    assert len(rig.read("kept")) == 1
    rig.restart()
    assert rig.findings() == []
    if how == "owned":
        assert [parsed(row[0]).body for row in rig.seal(1, max_messages=1).rows] == [b"a" * 1000]
        rig.ack_up_to(1)
    else:
        rig.advance(12 * HOUR)
        assert bodies(again := rig.pop()) == ["b"]
        assert refusals(rig.ack(again)) == [""]
    minutes(rig, 3)
    assert (rig.read("kept"), rig.read("idx"), rig.read("cq"), rig.read("pin")) == ([], [], [], [])


def test_retention_by_age_keeps_leased_messages_ackable_and_drops_unread_ones(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    rig.send("a", "b", "c")
    rows = rig.pop(1, invisible_ms=12 * HOUR)
    later(rig, 3 * HOUR)
    assert len(rig.read("kept")) == 1
    assert rig.pop() == []
    assert rig.numbers().dropped == 2
    assert rig.ack(rows) == [None]


@pytest.mark.mechanism("S1.50")
def test_a_new_group_steps_over_a_hole_and_counts_it(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group("old")
    sent_one_by_one(rig, "a", "b", "c")
    rows = rig.pop(group="old", invisible_ms=12 * HOUR)
    rig.ack(rows[1:2], group="old")
    later(rig, HOUR + MINUTE)
    assert chunks(rig) == 2
    rig.group()
    assert bodies(rig.pop()) == ["a", "c"]
    assert rig.numbers().dropped == 1


def test_a_bounded_read_does_not_go_beyond_its_bound_over_a_hole(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group("old")
    sent_one_by_one(rig, "a", "b", "c", "d")
    rows = rig.pop(group="old", invisible_ms=12 * HOUR)
    rig.ack(rows[1:3], group="old")
    later(rig, HOUR + MINUTE)
    rig.group()
    rig.attach(topic="t")
    sealed = rig.seal(1, upto=ask.Position({0: 3}, 1 << 40))
    assert [row[3] for row in sealed.rows] == [0]
    assert sealed.sealed == (1, True, 0, 0)


def test_a_lease_outlives_the_chunk_of_its_acked_members_and_a_restart(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=MINUTE)
    rig.group()
    rig.send("a")
    rig.skip(30_000)
    sent_one_by_one(rig, "b", "c")
    rows = rig.pop(invisible_ms=HOUR)
    rig.ack(rows[:1])
    minutes(rig, 2)
    assert chunks(rig) == 2
    rig.restart()
    assert rig.ack(rows[1:]) == [None, None]


def test_a_lease_with_a_hole_in_its_middle_comes_back(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=MINUTE)
    rig.group()
    sent_one_by_one(rig, "a", "b", "c")
    rows = rig.pop(invisible_ms=30 * MINUTE)
    rig.ack(rows[1:2])
    minutes(rig, 31)
    assert chunks(rig) == 2
    assert bodies(rig.pop()) == ["a", "c"]


def test_retention_rounds_over_pinned_chunks_come_to_an_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round visits a topic in pieces, each once, and ends."""
    monkeypatch.setattr(retention, "LOOKS_MAX", 4)
    for name in ("t", "u"):
        rig.topic(name, by_age=True, keep_ms=HOUR)
        rig.group()
        for text in "abc":
            rig.send(text, topic=name)
        rig.pop(topic=name, invisible_ms=12 * HOUR)
        rig.advance(30 * MINUTE)
    rig.skip(40 * MINUTE)
    rounds = retention.Retention(Retaining(0))
    tx = Tx(rig.core.state, rig.store, rig.now)
    for _ in range(2):
        pieces = list(itertools.takewhile(bool, (rounds.run(tx) for _ in range(100))))
        assert 3 < len(pieces) < 20
    tx.abort()


# ── What goes with a chunk ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_dropped_chunk_leaves_no_queue_index_or_history(rig: Rig) -> None:
    rig.topic(queues=2, keep_ms=HOUR)
    rig.group()
    sent_one_by_one(rig, "a", "b")
    rig.ack(rig.pop())
    assert len(rig.read("hist")) == 2
    later(rig, HOUR + MINUTE)
    assert [rig.read(name) for name in ("log", "cq", "idx", "hist", "quar", "kept")] == [[]] * 6


def test_history_that_did_not_go_with_its_chunk_goes_with_the_next(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_of_the_log, "HISTORY_MAX", 4)
    monkeypatch.setattr(history_rows, "BLOCK_BYTES_MAX", 0)  # a block for each row
    rig.topic(keep_ms=HOUR)
    rig.group()
    rig.send(*"abcdef")
    for row in rig.pop():
        rig.release([row], delay_ms=0)
    rig.ack(rig.pop())
    later(rig, HOUR + MINUTE)
    assert len(rig.read("hist")) > 0
    for text in "xyz":
        rig.send(text)
        rig.ack(rig.pop())
    later(rig, HOUR + MINUTE)
    assert rig.read("hist") == []


def test_history_written_after_its_chunk_had_gone_goes_too(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group()
    sent_one_by_one(rig, "a", "b")
    rows = rig.pop(invisible_ms=12 * HOUR)
    rig.ack(rows[:1])
    later(rig, HOUR + MINUTE)
    assert chunks(rig) == 1
    rig.ack(rows[1:])
    assert len(rig.read("hist")) == 1
    minutes(rig, 2)
    assert (rig.read("log"), rig.read("hist")) == ([], [])


def test_a_held_chunk_keeps_its_history_while_later_ones_go(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group()
    rig.send("a", "b")
    rig.send("c")
    a, b, c = rig.pop(invisible_ms=12 * HOUR)
    rig.release([a], delay_ms=SECOND, reason="kept")
    rig.ack([b, c])
    later(rig, HOUR + MINUTE)
    assert chunks(rig) == 1
    topic_id = rig.core.state.ids[("t", "t")]
    with rig.reading() as kv:
        assert "kept" in {row.reason for row in lease_history.rows(kv, topic_id, 0, 0)}


def test_request_numbers_are_forgotten_by_housekeeping(rig: Rig) -> None:
    rig.topic()
    for number in range(1, 6):
        rig.send("a", producer=f"p{number}", number=number)
    assert len(rig.read("dedup")) == 5
    rig.advance(10 * MINUTE)
    assert len(rig.read("dedup")) == 5
    minutes(rig, 2)
    assert rig.read("dedup") == []
