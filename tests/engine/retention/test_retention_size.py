"""Retention by size: a topic with a limit of bytes makes room before it stores, or says who is in the way (F.10)."""

import itertools
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.retention import by_size
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD
from popmq_server.embedded.store.keys import I64, U32
from popmq_server.errors import Refused
from popmq_server.values.message import RECORD, Extra
from popmq_server.values.records import TopicStat
from tests.engine.rig import HOUR, KEEP, MINUTE, SECOND, Rig, bodies, message, refusal, sending

MIB = 1 << 20


def size(text: str) -> int:
    return len(message(text).data) + RECORD.size


def large(name: str, kib: int = 100) -> str:
    """A text whose message takes exactly so many KiB of the log; its id is the text itself, so it counts twice."""
    bare = size(name + "x" * 20_000) - 40_000 - 2 * len(name)
    text = name + "x" * ((kib * 1024 - bare) // 2 - len(name))
    return text + "x" * ((kib * 1024 - size(text)) // 2)


def topic(rig: Rig, kib: int = 1024, by_age: bool = False, queues: int = 1, name: str = "t") -> None:
    rig.do(ask.CreateTopic(name, queues, by_age, KEEP, bytes_max=kib * 1024))


def limit(rig: Rig, kib: int, name: str = "t") -> None:
    rig.do(ask.UpdateTopic(name, 0, None, (("bytes_max", kib * 1024),)))


def fill(rig: Rig, *names: str, kib: int = 100) -> None:
    """One chunk for each name."""
    for name in names:
        rig.send(large(name, kib))


def names(rig: Rig, topic: str = "t") -> str:
    """The first character of the message in each chunk of a topic."""
    topic_id = rig.core.state.ids[("t", topic)]
    held = dict(rig.read("log"))
    found = [held[key[4:]] for key, _ in rig.read("idx") if key.startswith(U32.pack(topic_id))]
    return "".join(chr(chunk[chunk.index(b"xxxx") - 1]) for chunk in found)


def stored(rig: Rig, name: str = "t") -> int:
    """The counted bytes, which equal a scan."""
    topic_id = rig.core.state.ids[("t", name)]
    counted = rig.core.state.topic_stat.get(topic_id, TopicStat()).bytes
    prefix = U32.pack(topic_id)
    scanned = sum(IDX_HEAD.unpack_from(value)[1] for key, value in rig.read("idx") if key.startswith(prefix))
    assert counted == scanned
    return counted


def refused(rig: Rig, text: str) -> Refused:
    """A send that must be refused, and changes nothing."""
    before = [rig.read(name) for name in ("log", "idx", "cq", "queue", "stat", "poff", "tstat")]
    (result,) = rig.run(sending(text))
    assert isinstance(result, Refused), result
    assert [rig.read(name) for name in ("log", "idx", "cq", "queue", "stat", "poff", "tstat")] == before
    return result


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(by_size, "CHUNKS_MAX", 3)
    return 3


def test_a_message_takes_the_bytes_that_are_counted(rig: Rig) -> None:
    topic(rig)
    fill(rig, "a", kib=64)
    assert stored(rig) == 64 * 1024


# ── By age: what is oldest goes ──────────────────────────────────────────────────────────────────────────────────────


def test_a_send_beyond_the_limit_drops_the_oldest_messages_at_once_with_by_age(rig: Rig) -> None:
    topic(rig, 1024, by_age=True)
    fill(rig, *"abcdefghij")
    assert names(rig) == "abcdefghij"
    fill(rig, "k")
    assert names(rig) == "bcdefghijk", "in the same commit, with no tick between"
    assert stored(rig) == 1000 * 1024
    fill(rig, "L", kib=250)
    assert names(rig) == "efghijkL"


def test_unread_messages_dropped_at_the_size_limit_are_counted_with_by_age(rig: Rig) -> None:
    topic(rig, 1024, by_age=True)
    rig.group()
    rig.group("never")
    rig.pop()
    rig.pop(group="never")
    fill(rig, *"abcdefghij")
    rig.ack(rig.pop(2))
    fill(rig, *"klm")
    assert (rig.numbers().dropped, rig.numbers("never").dropped) == (1, 3)
    assert (rig.numbers().ready, rig.numbers("never").ready) == (10, 10)
    assert [row.body[0] for row in rig.pop()] == list("defghijklm")


def test_a_topic_without_groups_forgets_its_oldest(rig: Rig) -> None:
    topic(rig, 1024)
    fill(rig, *"abcdefghijkl")
    assert names(rig) == "cdefghijkl"


def test_a_burst_of_one_commit_into_a_topic_that_forgets_is_not_refused(rig: Rig) -> None:
    topic(rig, 1024, by_age=True, queues=3)
    rig.group()
    rig.pop()
    results = rig.run(*(sending(large(name)) for name in "abcdefghijklmnopqrstuvwxyz"))
    assert [refusal(result) for result in results] == [""] * 26
    assert stored(rig) <= MIB
    left = {row.body[0] for row in rig.pop()}
    assert rig.numbers().dropped == 26 - len(left)
    assert "z" in left


def test_offsets_and_positions_go_on_when_everything_was_dropped(rig: Rig) -> None:
    topic(rig, 1024, by_age=True)
    fill(rig, *"abc")
    fill(rig, "L", kib=1000)
    page = rig.browse("t")
    assert (page.min_offset, page.max_offset) == (3, 4)
    rig.restart()
    assert rig.send("next").first == 4


# ── By default: what a group has not finished is kept ────────────────────────────────────────────────────────────────


def test_messages_that_every_group_has_passed_are_dropped_early_at_the_size_limit(rig: Rig) -> None:
    topic(rig, 1024)
    for name in ("g", "slow"):
        rig.group(name)
        rig.pop(group=name)
    fill(rig, *"abcdefghij")
    rig.ack(rig.pop(5))
    rig.ack(rig.pop(3, group="slow"), group="slow")
    fill(rig, *"kl")
    assert names(rig) == "cdefghijkl"
    assert (rig.numbers().dropped, rig.numbers("slow").dropped) == (0, 0)


def test_a_send_beyond_the_limit_is_refused_and_names_the_group_that_holds_the_most(rig: Rig) -> None:
    topic(rig, 1024)
    for name in ("ahead", "behind"):
        rig.group(name)
        rig.pop(group=name)
    fill(rig, *"abcdefghij")
    rig.ack(rig.pop(9, group="ahead"), group="ahead")
    full = refused(rig, large("k"))
    assert (full.code, full.field, full.retryable, full.retry_after_ms) == ("STORAGE_FULL", "topic", True, 1000)
    assert full.message == (
        "topic 't' has 1024000 bytes, its retention.max_bytes is 1048576; "
        "group 'behind' has 10 messages of topic 't' to do"
    )
    rig.ack(rig.pop(1, group="behind"), group="behind")
    fill(rig, "k")
    assert names(rig) == "bcdefghijk"


def test_room_that_is_left_is_used(rig: Rig) -> None:
    topic(rig, 1024)
    rig.group()
    rig.pop()
    fill(rig, *"abcdefghij")
    assert refused(rig, large("k", 25)).code == "STORAGE_FULL"
    fill(rig, "k", kib=24)
    assert stored(rig) == MIB


@pytest.mark.parametrize("how", ["leased", "retry", "backoff"])
@pytest.mark.parametrize("by_age", [False, True])
def test_a_chunk_that_is_held_is_skipped(rig: Rig, how: str, by_age: bool) -> None:
    topic(rig, 1024, by_age)
    rig.group()
    rig.pop()
    fill(rig, *"abcdefghij")
    rows = rig.pop(invisible_ms=12 * HOUR)
    if how != "leased":
        rig.release(rows[:1], delay_ms=0 if how == "retry" else HOUR)
    rig.ack(rows[1:])
    fill(rig, *"kl")
    assert names(rig).replace("b", "").replace("c", "") == "adefghijkl"
    assert rig.numbers().dropped == 0


def test_messages_that_are_all_leased_refuse_the_next_until_one_is_done(rig: Rig) -> None:
    topic(rig, 1024, by_age=True)
    rig.group()
    rig.pop()
    fill(rig, *"abcdefghij")
    rows = rig.pop(invisible_ms=12 * HOUR)
    assert "group 'g' has 10 messages" in refused(rig, large("k")).message
    rig.ack(rows[4:5])
    fill(rig, "k")
    assert stored(rig) == 1000 * 1024


def test_a_request_that_is_larger_than_the_limit_is_refused_for_good(rig: Rig) -> None:
    topic(rig, 1024, by_age=True)
    full = refused(rig, large("L", 1025))
    assert (full.code, full.field, full.retryable) == ("INVALID_FIELD", "messages", False)
    fill(rig, "L", kib=1024)


@pytest.mark.slow
def test_refused_sends_of_one_commit_do_not_disturb_the_others(rig: Rig) -> None:
    topic(rig, 1024)
    rig.topic("u")
    rig.group()
    rig.pop()
    asked = [sending(large(name, 300)) for name in "abcde"] + [sending("small"), sending("other", topic="u")]
    assert [refusal(result) for result in rig.run(*asked)] == ["", "", "", "STORAGE_FULL", "STORAGE_FULL", "", ""]
    assert stored(rig) == 3 * 300 * 1024 + size("small")


def test_entries_that_the_topic_refuses_take_no_room_of_the_next_request(rig: Rig) -> None:
    topic(rig, 1024)
    grouped = message("L")._replace(extra=Extra(message_group="g"))
    wrong = [ask.Send("t", (grouped._replace(data=message(large(name, 900)).data),)) for name in "ab"]
    first, second, sent = rig.run(*wrong, sending(large("c", 900)))
    assert [refusal(one) for one in (*first.places, *second.places, sent)] == ["INVALID_FIELD", "INVALID_FIELD", ""]
    assert stored(rig) == 900 * 1024


# ── In pieces ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lower_limit_trims_the_topic_at_once_in_bounded_pieces(rig: Rig, few: int) -> None:
    topic(rig, 2048, by_age=True)
    fill(rig, *"abcdefghijklmnopqrst")
    limit(rig, 1024)
    left = [len(rig.read("log"))]
    while rig.due:
        rig.run()
        left.append(len(rig.read("log")))
    assert left[-1] == 10
    assert all(0 <= before - after <= few for before, after in itertools.pairwise(left))
    assert names(rig) == "klmnopqrst"


def test_a_lower_limit_does_not_drop_unfinished_messages_of_a_group(rig: Rig, few: int) -> None:
    topic(rig, 2048)
    rig.group()
    rig.pop()
    fill(rig, *"abcdefghijklmnopqrst")
    rig.ack(rig.pop(5))
    limit(rig, 1024)
    rig.settle()
    assert names(rig) == "fghijklmnopqrst"
    assert refused(rig, "small").code == "STORAGE_FULL"
    assert not rig.due, "nobody looks again and again for what is not there"


@pytest.mark.slow
def test_a_send_that_needs_more_than_one_piece_is_refused_while_the_topic_is_trimmed(rig: Rig, few: int) -> None:
    topic(rig, 1024, by_age=True)
    fill(rig, *"abcdefghij")
    assert refused(rig, large("L", 900)).code == "STORAGE_FULL"
    assert rig.due
    rig.settle()
    fill(rig, "L", kib=900)
    assert names(rig) == "jL"


def test_chunks_after_many_pinned_ones_are_dropped(rig: Rig, few: int) -> None:
    topic(rig, 1024, by_age=True)
    rig.group()
    rig.pop()
    fill(rig, *"abcdefghij")
    rig.pop(8, invisible_ms=12 * HOUR)
    assert refused(rig, large("k")).code == "STORAGE_FULL"
    rig.settle()
    fill(rig, "k")
    assert names(rig)[-2:] == "jk"
    assert stored(rig) <= MIB


@pytest.mark.slow
def test_a_full_topic_is_not_looked_through_for_each_refused_send(rig: Rig, few: int) -> None:
    topic(rig, 1024, by_age=True)
    rig.group()
    rig.pop()
    fill(rig, *"abcdefghij")
    rig.pop(invisible_ms=12 * HOUR)
    looks = []
    for _ in range(10):
        refused(rig, large("k"))
        looks.append(rig.due)
        rig.settle()
    assert looks == [True] + [False] * 9
    rig.skip(by_size.TRIM_AGAIN_MS)
    refused(rig, large("k"))
    assert rig.due


@pytest.mark.slow
def test_dead_letters_are_stored_beyond_the_limit_and_the_topic_is_trimmed_after_them(rig: Rig) -> None:
    rig.topic()
    rig.group()
    limit(rig, 1024, "%DLQ%g")
    for name in "abcdefghijkl":
        fill(rig, name)
        rig.reject(rig.pop())
        rig.settle()
    assert names(rig, "%DLQ%g") == "cdefghijkl"
    assert rig.numbers().dead == 10


@pytest.mark.slow
def test_the_limit_of_a_topic_without_sends_is_checked_once_a_minute(rig: Rig) -> None:
    topic(rig, 1024)
    rig.group()
    rig.pop()
    fill(rig, *"abcdefghij")
    rig.core.state.topics.load(
        rig.core.state.ids[("t", "t")],
        rig.core.state.topics[rig.core.state.ids[("t", "t")]]._replace(bytes_max=MIB // 2),
    )
    rig.ack(rig.pop())
    rig.settle()
    assert names(rig) == "abcdefghij"
    rig.advance(MINUTE)
    assert names(rig) == "fghij"
    limit(rig, 512)  # as the store should have had it


# ── What is staged in the same commit ────────────────────────────────────────────────────────────────────────────────


def test_a_message_appended_in_the_commit_that_drops_the_last_chunk_of_its_queue_is_not_lost(rig: Rig) -> None:
    """The end of a queue counts messages that the commit appends; its first readable offset must not."""
    rig.topic()
    rig.group()
    rig.do(ask.UpdateTopic("%DLQ%g", 0, (True, MINUTE)))
    rig.send("a", "b")
    first, second = rig.pop()
    rig.reject([first])
    rig.skip(2 * MINUTE)
    rows = rig.commit(ask.ChangeInvisibleTime("g", (ask.Change(second.handle, "reject"),)), operations.StoreState())
    assert refusal(rows.results[0]) == ""
    assert rig.browse("%DLQ%g").min_offset == 1
    assert [letter.body for letter in rig.dead()] == [b"b"]


def test_a_send_makes_room_beside_sends_of_others_in_the_same_commit(rig: Rig) -> None:
    topic(rig, 1024, by_age=True)
    rig.group()
    rig.pop()
    fill(rig, *"abcdefghij")
    rig.run(*(sending(large(name)) for name in "klm"))
    assert stored(rig) == 1000 * 1024
    assert [row.body[0] for row in rig.pop()] == list("defghijklm")


# ── The checker ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_checker_compares_the_counted_bytes_with_the_chunks(rig: Rig) -> None:
    topic(rig)
    fill(rig, "a")
    key = U32.pack(rig.core.state.ids[("t", "t")])
    (before,) = (value for found, value in rig.read("tstat") if found == key)

    def tamper(value: bytes) -> Any:
        return lambda kv: kv.put("tstat", key, value)

    rig.write(tamper(I64.pack(7) + before[8:]))
    found = rig.findings()
    assert "topic t has 102400 bytes in its chunks, counted 7" in found
    rig.write(tamper(before))


@pytest.mark.parametrize("by_age", [False, True])
def test_the_limit_outlives_a_restart(rig: Rig, by_age: bool) -> None:
    topic(rig, 1024, by_age)
    rig.group()
    rig.pop()
    fill(rig, *"abcdefghij")
    rig.crash()
    if by_age:
        fill(rig, "k")
    else:
        assert refused(rig, large("k")).code == "STORAGE_FULL"
    assert stored(rig) == 1000 * 1024
    rig.advance(SECOND)
    assert bodies(rig.pop(1))[0][0] == ("b" if by_age else "a")
