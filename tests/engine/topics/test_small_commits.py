"""Messages that are sent one by one: what they cost on disk, and that sharing a chunk changes nothing else."""

from collections.abc import Iterable

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded import operations
from popmq_server.embedded.rules.topics import index
from popmq_server.embedded.rules.topics.chunk import OPEN_BYTES_MAX, OPEN_MS_MAX
from popmq_server.embedded.store.journal.changes import JournaledTransaction
from popmq_server.embedded.store.keys import U64
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.conftest import MakeRig
from tests.engine.dead_letters import died, piece
from tests.engine.rig import DAY, HOUR, KEEP, MINUTE, SECOND, Rig, bodies, message, parsed
from tests.known import known

#: Stored bytes, in whole pages, of messages sent one by one, divided by those of the same messages in large batches.
RATIO_MAX = 1.3
BATCH = 512


def one_by_one(rig: Rig, texts: Iterable[str], topics: Iterable[str] = ("t",), apart_ms: int = 0) -> None:
    """Each text into each of the topics, a commit each."""
    for text in texts:
        for topic in topics:
            rig.send(text, topic=topic)
        rig.skip(apart_ms)


def stored_bytes(rig: Rig) -> int:
    with rig.reading() as kv:
        return rig.store.used_pages(kv) * rig.store.page_bytes


def chunks(rig: Rig) -> list[tuple[int, int]]:
    """(position, bytes) of each chunk."""
    return [(U64.unpack(key)[0], len(value)) for key, value in rig.read("log")]


# ── What they cost ───────────────────────────────────────────────────────────────────────────────────────────────────


def cost(rig: Rig, size: int, count: int, topics: int, batch: int) -> float:
    """Stored bytes for each of `count` messages with bodies of `size` bytes, sent to the topics in turn."""
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        rig.topic(name, 8)
    before = stored_bytes(rig)
    messages = [message("x" * size, f"01890a5d-ac96-774b-bcce-{number:012}") for number in range(count)]
    for turn, start in enumerate(range(0, count, batch)):
        rig.do(ask.Send(names[turn % topics], tuple(messages[start : start + batch])))
        rig.skip(10)
    return (stored_bytes(rig) - before) / count


@pytest.mark.slow
@pytest.mark.parametrize("topics", [1, 3])
@pytest.mark.parametrize("count", [100, 1000])
@pytest.mark.parametrize("size", [100, 1024, 1400, 4096])
def test_messages_sent_one_by_one_take_hardly_more_room_than_in_large_batches(
    make_rig: MakeRig, size: int, count: int, topics: int
) -> None:
    small = cost(make_rig("small"), size, count, topics, 1)
    large = cost(make_rig("large"), size, count, 1, BATCH)
    if count < BATCH:  # a page for each tree that is begun
        small -= 3 * topics * 4096 / count
    assert small <= RATIO_MAX * large


def test_topics_that_are_sent_to_in_turn_share_no_chunk(rig: Rig) -> None:
    for name in "tuv":
        rig.topic(name)
    one_by_one(rig, "abcd", "tuv")
    assert [size for _, size in chunks(rig)] == [4 * 26] * 3
    for name in "tuv":
        assert [parsed(row[0]).body.decode() for row in rig.browse(name).rows] == list("abcd")


def test_a_chunk_gets_no_company_once_it_is_old_or_full_or_the_broker_was_restarted(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=30 * DAY)
    one_by_one(rig, ["a", "b"], apart_ms=OPEN_MS_MAX - 1)
    assert len(chunks(rig)) == 1
    rig.skip(1)
    rig.send("c")
    assert len(chunks(rig)) == 2
    rig.restart()
    rig.send("d")
    assert len(chunks(rig)) == 3
    one_by_one(rig, ["x" * (OPEN_BYTES_MAX // 8)] * 4)  # the id is as long as the body
    assert len(chunks(rig)) == 4
    assert max(size for _, size in chunks(rig)) <= OPEN_BYTES_MAX


def test_a_large_commit_has_a_chunk_of_its_own_and_ends_the_one_before_it(rig: Rig) -> None:
    rig.topic()
    rig.send("a")
    rig.send("x" * OPEN_BYTES_MAX)
    rig.send("b")
    assert len(chunks(rig)) == 3
    assert [row[3] for row in rig.browse("t").rows] == [0, 1, 2]


def test_a_commit_that_fails_leaves_the_chunk_as_it_was(rig: Rig) -> None:
    rig.topic()
    rig.send("a")

    def die(transaction: Transaction) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Transaction, "commit", die)
        patched.setattr(JournaledTransaction, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            rig.send("lost")
    rig.crash()
    rig.send("b")
    assert [parsed(row[0]).body for row in rig.browse("t").rows] == [b"a", b"b"]


# ── What is leased, damaged, looked up ───────────────────────────────────────────────────────────────────────────────


def test_leases_older_than_later_messages_of_their_chunk_are_settled_as_usual(rig: Rig) -> None:
    rig.pair()
    one_by_one(rig, "abc")
    rows = rig.pop()
    one_by_one(rig, "de")
    rig.ack(rows[:1])
    rig.release(rows[1:2], delay_ms=0)
    rig.advance(MINUTE)
    assert sorted(bodies(rig.pop())) == list("bcde")


def test_a_damaged_message_is_set_aside_alone_and_its_chunk_goes_on(rig: Rig) -> None:
    rig.pair()
    one_by_one(rig, "abc")
    rig.damage(1)
    one_by_one(rig, "d")
    assert len(chunks(rig)) == 1
    assert bodies(rig.pop()) == ["a", "c", "d"]
    assert rig.numbers().quarantined == 1


def test_a_group_may_begin_at_a_time_within_a_chunk(rig: Rig) -> None:
    rig.topic()
    begin = rig.now
    one_by_one(rig, "abcdef", apart_ms=SECOND)
    assert len(chunks(rig)) == 1
    rig.group(start_from="TIMESTAMP", start_ms=begin + 2 * SECOND)
    assert bodies(rig.pop()) == list("cdef")


def test_a_look_up_within_a_chunk_finds_only_messages_stored_between_two_times(rig: Rig) -> None:
    rig.topic()
    begin = rig.now
    for text in "abcdef":
        rig.do(ask.Send("t", (message(text, keys=("k",)),)))
        rig.skip(SECOND)
    found = rig.do(operations.LookUpPiece("t", "", "k", 10, 1 << 20, begin + 2 * SECOND, begin + 4 * SECOND))
    assert [(parsed(row[0]).body, row[1]) for row in found.rows] == [
        (text.encode(), begin + place * SECOND) for place, text in ((4, "e"), (3, "d"), (2, "c"))
    ]


def test_a_message_sent_after_a_redrive_has_a_later_position(rig: Rig) -> None:
    """Positions of a topic grow with the time of storing: searches rely on it."""
    rig.pair()
    died(rig, "a")
    rig.skip(SECOND)
    piece(rig)
    rig.skip(SECOND)
    rig.send("b")
    rows = rig.pop()
    rig.release(rows, delay_ms=0)
    assert rig.numbers().oldest_ms == min(row.stored_ms for row in rows) < rig.now


def test_the_oldest_message_under_a_lease_is_reported_with_its_own_time(rig: Rig) -> None:
    rig.pair()
    begin = rig.now
    one_by_one(rig, "abc", apart_ms=SECOND)
    rows = rig.pop(invisible_ms=HOUR)
    for done, row in enumerate(rows):
        assert rig.numbers().oldest_ms == begin + done * SECOND
        rig.ack([row])


def test_messages_that_join_a_chunk_after_an_index_merge_are_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "NAMES_MAX", 2)
    monkeypatch.setattr(index, "FRESH_MIN", 1)
    rig.topic()
    for number in range(20):
        rig.send(f"a{number}")
        rig.advance(index.MERGE_EVERY_MS)
        if number % 5 == 4:
            rig.skip(OPEN_MS_MAX)
    for number in range(20):
        found = rig.do(operations.LookUpPiece("t", f"a{number}", "", 10, 1 << 20))
        assert [parsed(row[0]).message_id for row in found.rows] == [f"a{number}"]
    assert rig.read("widx")


# ── Retention ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_that_joined_a_finished_chunk_is_not_dropped_with_it(rig: Rig) -> None:
    """The mark that lets the first message go must not reach the second."""
    rig.pair()
    rig.skip(50 * SECOND)
    rig.send("a")
    rig.ack(rig.pop())
    rig.advance(11 * SECOND)  # housekeeping has looked
    rig.send("b")
    for _ in range(3):
        rig.advance(KEEP)
    assert bodies(rig.pop()) == ["b"]


def test_retention_by_age_drops_each_message_within_two_minutes_after_its_time(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    begin = rig.now
    one_by_one(rig, "abcdefghij", apart_ms=10 * SECOND)
    for _ in range(65):
        rig.advance(MINUTE)
        left = [row[1] for row in rig.browse("t").rows]
        assert all(
            begin + place * 10 * SECOND in left for place in range(10) if rig.now <= begin + place * 10_000 + HOUR
        )
        assert all(stored_ms + HOUR + 2 * MINUTE >= rig.now for stored_ms in left)
    assert chunks(rig) == []


@pytest.mark.slow
def test_a_topic_with_a_limit_of_bytes_keeps_nearly_all_that_it_may(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, True, DAY, bytes_max=1 << 20))
    one_by_one(rig, (f"{number:04}" + "x" * 2000 for number in range(1200)))
    topic = next(found for found in rig.look(queries.Topics("t")))
    assert (1 << 20) - 2 * OPEN_BYTES_MAX < known(topic.bytes) <= 1 << 20


def test_a_purged_or_deleted_topic_leaves_no_chunk_and_its_successor_begins_one(rig: Rig) -> None:
    rig.topic()
    rig.send("a")
    rig.do(ask.PurgeTopic("t"))
    rig.send("b")
    rig.settle()
    assert [size for _, size in chunks(rig)] == [26]
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    assert chunks(rig) == []
