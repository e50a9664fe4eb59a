"""Pull: statuses and offset corrections, batches, filters."""

import contextlib
from collections.abc import Iterator

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.pulling import pull as pulls
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.errors import Refused
from tests.engine.pull_steps import (
    RETRY,
    committed,
    one_by_one,
    places,
    pull,
    pulling,
    send_tagged,
    sums,
    switch,
    texts,
)
from tests.engine.rig import HOUR, MINUTE, Rig, message, numbered, refusal

TAG_A = ("tag", "a")
BIG = ("sql92", "size > 5")


@pytest.fixture
def shop(rig: Rig) -> Rig:
    """Topic t of one queue, group g that pulls it."""
    return pulling(rig)


@contextlib.contextmanager
def without(rig: Rig, name: str, *keys: bytes) -> Iterator[None]:
    """These entries of the store are not there for a while."""
    missing = [(key, raw) for key, raw in rig.read(name) if key in keys]
    assert len(missing) == len(keys)

    def take(kv: Transaction) -> None:
        for key in keys:
            kv.delete(name, key)

    def give(kv: Transaction) -> None:
        for key, raw in missing:
            kv.put(name, key, raw)

    rig.write(take)
    yield
    rig.write(give)


def blocks(rig: Rig, *offsets: int) -> tuple[bytes, ...]:
    """Where the index has these offsets, one in a block."""
    return tuple(CQ_KEY.pack(rig.core.state.ids["t", "t"], 0, offset) for offset in offsets)


def expire(rig: Rig, *bodies: str) -> None:
    """A topic that keeps messages for an hour has forgotten these."""
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    switch(rig, "PULL")
    one_by_one(rig, *bodies)
    rig.advance(HOUR + MINUTE)


# ── Statuses and the next offset ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S0.27")
@pytest.mark.parametrize("offset", [0, 7])
def test_a_queue_that_never_had_a_message_says_so_and_begins_at_0(shop: Rig, offset: int) -> None:
    found = pull(shop, offset)
    assert (found.status, found.rows, found.next_offset) == ("NO_MESSAGE_IN_QUEUE", [], 0)
    assert (found.min_offset, found.max_offset) == (0, 0)


@pytest.mark.mechanism("S0.32", "S2.27")
@pytest.mark.parametrize("queue", [1, 65_536, 2**32 - 1])
def test_a_queue_that_the_topic_does_not_have_is_a_status(shop: Rig, queue: int) -> None:
    shop.send("a")
    assert pull(shop, 0, queue)[:3] == ("NO_MATCHED_LOGIC_QUEUE", [], 0)


@pytest.mark.mechanism("S0.25", "S0.44")
def test_messages_are_found_with_the_ends_of_their_queue(shop: Rig) -> None:
    shop.send("a", "b", "c")
    found = pull(shop, 1)
    assert (found.status, places(found)) == ("FOUND", [("b", 1, 1), ("c", 2, 1)])
    assert (found.next_offset, found.min_offset, found.max_offset, found.more) == (3, 0, 3, False)
    assert found.rows[0][1] == shop.now


@pytest.mark.mechanism("S0.28", "S2.41")
@pytest.mark.parametrize("offset", [0, 1])
def test_an_offset_below_the_first_is_corrected_to_the_first(rig: Rig, offset: int) -> None:
    expire(rig, "a", "b")
    rig.send("c")
    assert pull(rig, offset)[:5] == ("OFFSET_TOO_SMALL", [], 2, 2, 3)
    assert texts(pull(rig, 2)) == ["c"]


@pytest.mark.slow
def test_a_queue_whose_messages_are_all_gone_is_read_on_at_its_end(rig: Rig) -> None:
    expire(rig, "a", "b")
    assert pull(rig, 0)[:5] == ("OFFSET_TOO_SMALL", [], 2, 2, 2)
    assert pull(rig, 2)[:3] == ("OFFSET_OVERFLOW_ONE", [], 2)


@pytest.mark.mechanism("S0.29")
def test_the_next_message_has_the_offset_that_a_pull_at_the_end_returned(shop: Rig) -> None:
    shop.send("a")
    found = pull(shop, 1)
    assert found[:3] == ("OFFSET_OVERFLOW_ONE", [], 1)
    shop.send("b")
    assert places(pull(shop, found.next_offset)) == [("b", 1, 1)]


@pytest.mark.mechanism("S0.30")
@pytest.mark.parametrize("beyond", [1, 10, 2**62])
def test_an_offset_beyond_the_end_is_corrected_to_the_end_also_when_the_first_is_0(shop: Rig, beyond: int) -> None:
    """The reference's prose takes the first offset when that is 0, and reads everything again."""
    shop.send("a", "b")
    assert pull(shop, 2 + beyond)[:3] == ("OFFSET_OVERFLOW_BADLY", [], 2)


@pytest.mark.mechanism("S0.31")
@pytest.mark.usefixtures("a_chunk_a_commit")
def test_a_hole_is_reported_with_the_offset_after_it(shop: Rig) -> None:
    one_by_one(shop, "a", "b", "c", "d")
    with without(shop, "cq", *blocks(shop, 1, 2)):
        before = pull(shop, 0)
        assert (before.status, texts(before), before.next_offset, before.more) == ("FOUND", ["a"], 1, True)
        hole = pull(shop, 1)
        assert hole[:3] == ("OFFSET_FOUND_NULL", [], 3)
        assert hole.more
        assert pull(shop, 2)[:3] == ("OFFSET_FOUND_NULL", [], 3), "also from within"
        assert texts(pull(shop, 3)) == ["d"]


@pytest.mark.usefixtures("a_chunk_a_commit")
def test_a_hole_at_the_end_ends_at_the_end(shop: Rig) -> None:
    one_by_one(shop, "a", "b")
    with without(shop, "cq", *blocks(shop, 1)):
        found = pull(shop, 1)
    assert (*found[:3], found.more) == ("OFFSET_FOUND_NULL", [], 2, False)


@pytest.mark.mechanism("S0.39", "S0.40")
def test_messages_that_cannot_be_read_are_passed_over_and_told_when_nothing_else_is_there(shop: Rig) -> None:
    one_by_one(shop, "a", "b", "c")
    shop.damage(0)
    shop.damage(1)
    found = pull(shop, 0, max_messages=1)
    assert (found.status, texts(found), found.next_offset) == ("FOUND", ["c"], 3), "a status is for empty answers"
    shop.damage(2)
    assert pull(shop, 0)[:3] == ("MESSAGE_WAS_REMOVING", [], 3)
    assert len(shop.read("quar")) == 3


def test_a_damaged_message_is_reported_once_however_often_it_is_pulled(
    shop: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    one_by_one(shop, "a")
    shop.damage(0)
    for _ in range(3):
        pull(shop, 0)
    assert caplog.text.count("topic t queue 0 offset 0") == 1
    assert shop.commit(ask.Pull("t", "g", 0, 0)).wrote is False


@pytest.mark.usefixtures("a_chunk_a_commit")
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_message_whose_chunk_is_gone_is_no_message_and_no_damage(shop: Rig, gone: int) -> None:
    """Also a position in the log that is beyond all messages of the queue."""
    one_by_one(shop, "a", "b", "c")
    with without(shop, "log", shop.read("log")[gone][0]):
        assert texts(pull(shop, 0)) == [text for place, text in enumerate("abc") if place != gone]
    assert shop.read("quar") == []


def test_the_place_of_a_damaged_message_is_kept_and_those_around_it_are_read(shop: Rig) -> None:
    shop.send("a", "bb", "ccc")
    shop.damage(1)
    found = pull(shop, 0)
    assert (texts(found), [row[3] for row in found.rows], found.next_offset) == (["a", "ccc"], [0, 2], 3)
    ((key, value),) = shop.read("quar")
    (_, block), *_ = shop.read("cq")
    position, size, _ = [*CQ_ENTRY.iter_unpack(block)][1]
    assert CQ_KEY.unpack(key)[1:] == (0, 1)
    assert value == U64.pack(position) + U32.pack(size)


# ── Batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("asked", "got"), [(1, 1), (3, 3), (10, 10), (11, 10)])
def test_a_batch_has_at_most_as_many_messages_as_asked_for(shop: Rig, asked: int, got: int) -> None:
    shop.send(*numbered("m", 10))
    found = pull(shop, 0, max_messages=asked)
    assert (texts(found), found.next_offset, found.more) == (list(numbered("m", got)), got, got < 10)


@pytest.mark.mechanism("S0.35")
def test_a_batch_is_cut_by_bytes_but_never_below_one_message(shop: Rig) -> None:
    shop.send(*("x" * 1000 for _ in range(5)))
    assert len(pull(shop, 0, max_bytes=5000).rows) == 2
    found = pull(shop, 2, max_bytes=1)
    assert (len(found.rows), found.next_offset) == (1, 3), "what did not fit is not passed over"


@pytest.mark.slow
def test_batches_joined_by_the_next_offset_are_the_queue(shop: Rig) -> None:
    for number in range(30):
        shop.send(*(f"m{number}.{place}" for place in range(number % 4 + 1)))
    got, offset = [], 0
    while (found := pull(shop, offset, max_messages=7)).status == "FOUND":
        got += texts(found)
        offset = found.next_offset
    assert got == [f"m{number}.{place}" for number in range(30) for place in range(number % 4 + 1)]
    assert found.status == "OFFSET_OVERFLOW_ONE"


def test_a_pull_sees_messages_stored_earlier_in_its_commit_batch(shop: Rig) -> None:
    send = ask.Send("t", (message("a"),), bytes=10)
    *_, found = shop.run(ask.Pull("t", "g", 0, 0), send, ask.QueryOffsets("t"), ask.Pull("t", "g", 0, 0))
    assert texts(found) == ["a"]


# ── Who reads, and what is kept of it ────────────────────────────────────────────────────────────────────────────────


def test_a_pull_without_a_group_leaves_no_trace(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    before = {name: rig.read(name) for name in ("poff", "stat", "sub", "ck", "due", "rq")}
    assert not rig.commit(ask.Pull("t", "", 0, 0, filter=TAG_A)).wrote
    assert texts(pull(rig, 0, group="")) == ["a", "b"]
    assert {name: rig.read(name) for name in before} == before
    assert [row.body for row in rig.pop()] == ["a", "b"]
    assert texts(pull(rig, 0, group="")) == ["a", "b"], "leased or not"


@pytest.mark.parametrize("named", [False, True], ids=["before it named the topic", "after a pop"])
def test_a_pull_of_a_group_that_pops_is_refused_and_leaves_no_trace(rig: Rig, named: bool) -> None:
    rig.pair()
    rig.send("a", "b")
    if named:
        rig.release(rig.pop(1), delay_ms=0)
    asked = [ask.Pull("t", "g", 0, 0, filter=TAG_A), *([ask.Pull(RETRY, "g", 0, 0)] if named else [])]
    for one in asked:
        committed = rig.commit(one)
        assert (refusal(committed.results[0]), committed.wrote) == ("WRONG_CONSUME_MODE", False)
    assert len(rig.pop()) == 2


def test_names_that_do_not_exist_are_refused(shop: Rig) -> None:
    asked = [
        ask.Pull("nobody", "g", 0, 0),
        ask.Pull("t", "nobody", 0, 0),
        ask.Pull("%RETRY%nobody+t", "", 0, 0),
        ask.Pull("%RETRY%g+nobody", "", 0, 0),
        ask.Pull(RETRY, "h", 0, 0),
        ask.Pull("%DLQ%nobody", "g", 0, 0),
    ]
    assert [refusal(one) for one in shop.run(*asked)] == [
        *("TOPIC_NOT_FOUND", "GROUP_NOT_FOUND", "TOPIC_NOT_FOUND", "TOPIC_NOT_FOUND", "INVALID_FIELD"),
        "TOPIC_NOT_FOUND",
    ]


@pytest.mark.mechanism("S0.18")
def test_the_offset_that_a_pull_carries_is_committed_before_it_reads(rig: Rig) -> None:
    pulling(rig).send("a", "b", "c")
    found = pull(rig, 2, commit_offset=2)
    assert (texts(found), found.acked, committed(rig)) == (["c"], 2, [2])
    assert sums(rig) == (1, 0, 0, 0, 2)


def test_a_pull_carries_an_offset_only_for_a_group_that_pulls(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    asked = [ask.Pull("t", "g", 0, 0, commit_offset=1), ask.Pull("t", "", 0, 0, commit_offset=1)]
    assert [refusal(one) for one in rig.run(*asked)] == ["WRONG_CONSUME_MODE", "INVALID_FIELD"]
    switch(rig, "PULL")
    asked = [ask.Pull("t", "g", 0, 0, commit_offset=2), ask.Pull("t", "g", 1, 0, commit_offset=0)]
    assert [refusal(one) for one in rig.run(*asked)] == ["INVALID_FIELD"] * 2
    assert committed(rig) == [0]


# ── Filters ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S0.41")
@pytest.mark.parametrize("wanted", [TAG_A, ("sql92", "TAGS = 'a'")], ids=["index stage", "log stage"])
def test_a_pull_passes_over_messages_that_do_not_match_for_good(rig: Rig, wanted: tuple[str, str]) -> None:
    pulling(rig)
    send_tagged(rig, "b1", "a2", "b3", "b4", "a5", "b6")
    found = pull(rig, 0, max_messages=1, filter=wanted)
    assert (places(found), found.status) == ([("a2", 1, 1)], "FOUND")
    assert 2 <= found.next_offset <= 4, "behind it, and what was looked at behind it"
    found = pull(rig, found.next_offset)
    assert (places(found), found.next_offset) == ([("a5", 4, 1)], 6)
    assert pull(rig, 5)[:3] == ("NO_MATCHED_MESSAGE", [], 6)


@pytest.mark.mechanism("S0.34")
def test_a_read_with_a_filter_looks_at_a_bounded_number_of_messages(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls, "SCAN_UNITS_MAX", 40)
    monkeypatch.setattr(pulls, "REJECTIONS_MAX", 30)
    pulling(rig)
    send_tagged(rig, *(f"b{number}" for number in range(100)), "a7")
    looks, offset = [], 0
    while (found := pull(rig, offset, filter=TAG_A)).status == "NO_MATCHED_MESSAGE":
        assert found.more
        looks.append(found.next_offset - offset)
        offset = found.next_offset
    assert (looks, texts(found)) == ([40, 40], ["a7"])
    rejected = pull(rig, 0, group="", filter=("sql92", "size = 1000"))
    assert (rejected.status, rejected.next_offset, rejected.more) == ("NO_MATCHED_MESSAGE", 30, True)


def test_a_group_that_pulls_has_one_filter(rig: Rig) -> None:
    pulling(rig)
    send_tagged(rig, "a1", "b9")
    assert texts(pull(rig, 0, filter=BIG)) == ["b9"]
    assert texts(pull(rig, 0)) == ["b9"], "the first pull fixed it"
    with pytest.raises(Refused) as refused:
        pull(rig, 0, filter=TAG_A)
    assert refused.value.code == "FILTER_CONFLICT"
    assert texts(pull(rig, 0, group="", filter=TAG_A)) == ["a1"], "a reader without a group has its own"


def test_the_first_pull_of_a_retry_topic_fixes_the_filter_of_its_group(rig: Rig) -> None:
    pulling(rig)
    assert texts(pull(rig, 0, topic=RETRY)) == []
    with pytest.raises(Refused) as refused:
        pull(rig, 0, filter=TAG_A)
    assert refused.value.code == "FILTER_CONFLICT"


def test_a_group_that_popped_pulls_by_its_filter_too(rig: Rig) -> None:
    rig.topic()
    rig.group()
    send_tagged(rig, "a1", "b2")
    rig.pop(filter=TAG_A)
    switch(rig, "PULL")
    assert texts(pull(rig, 0)) == ["a1"]
    assert refusal(rig.run(ask.Pull("t", "g", 0, 0, filter=BIG))[0]) == "FILTER_CONFLICT"
    assert texts(pull(rig, 0, group="")) == ["a1", "b2"]
