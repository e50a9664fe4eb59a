"""Pull of retry topics, by the numbers of their entries, and of dead-letter topics."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from tests.engine.pull_steps import (
    RETRY,
    commit,
    committed,
    one_by_one,
    places,
    pull,
    pulled_again,
    pulling,
    send_back,
    send_tagged,
    switch,
    texts,
)
from tests.engine.rig import MINUTE, Rig, refusal

# ── Retry topics ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_retry_topic_is_read_by_the_numbers_of_its_entries(rig: Rig) -> None:
    pulling(rig).send("a", "b", "c")
    send_back(rig, 1, 2, 0, delay_ms=0)
    found = pull(rig, 0, topic=RETRY)
    assert [place[::2] for place in places(found)] == [("b", 2), ("c", 2), ("a", 2)]
    first, second, third = (row[3] for row in found.rows)
    assert first < second < third < found.next_offset
    assert {row[2] for row in found.rows} == {0}
    assert texts(pull(rig, second, topic=RETRY)) == ["c", "a"]
    assert texts(pull(rig, 0, topic=RETRY, group="")) == ["b", "c", "a"], "anybody may look"
    assert pull(rig, 0, 1, topic=RETRY)[:3] == ("NO_MATCHED_LOGIC_QUEUE", [], 0)


def test_the_next_retry_is_at_or_after_the_offset_that_a_pull_at_the_end_returned(rig: Rig) -> None:
    pulling(rig).send("a", "b")
    rig.group("h")
    rig.pop(group="h")
    send_back(rig, 0, delay_ms=0)
    found = pull(rig, pull(rig, 0, topic=RETRY).next_offset, topic=RETRY)
    assert found.status == "OFFSET_OVERFLOW_ONE"
    rig.advance(MINUTE)  # h's leases end: its entries take numbers as well
    send_back(rig, 1, delay_ms=0)
    after = pull(rig, found.next_offset, topic=RETRY)
    assert texts(after) == ["b"]
    assert pull(rig, after.max_offset + 1, topic=RETRY)[:3] == ("OFFSET_OVERFLOW_BADLY", [], after.max_offset)


def test_retries_are_filtered_as_pops_of_them_are(rig: Rig) -> None:
    pulling(rig)
    send_tagged(rig, "a1", "b2", "a3")
    send_back(rig, 0, 1, 2, delay_ms=0)
    rig.do(ask.SetFilter("t", "g", ("tag", "a")))
    assert [place[0] for place in pulled_again(rig)] == ["a1", "a3"]
    last = pull(rig, 0, topic=RETRY).rows[0][3] + 1
    rig.do(ask.SetFilter("t", "g", ("tag", "c")))
    assert pull(rig, last, topic=RETRY)[:2] == ("NO_MATCHED_MESSAGE", [])


def test_batches_of_a_retry_topic_are_bounded(rig: Rig) -> None:
    pulling(rig).send(*("x" * 1000 for _ in range(5)))
    send_back(rig, *range(5), delay_ms=0)
    found = pull(rig, 0, topic=RETRY, max_messages=2)
    assert (len(found.rows), found.more) == (2, True)
    assert len(pull(rig, 0, topic=RETRY, max_bytes=5000).rows) == 2
    assert len(pull(rig, 0, topic=RETRY, max_bytes=1).rows) == 1
    assert len(pull(rig, found.next_offset, topic=RETRY).rows) == 3


def test_the_offset_that_a_pull_of_a_retry_topic_carries_removes_the_entries_below(rig: Rig) -> None:
    pulling(rig).send("a", "b", "c")
    send_back(rig, 0, 1, 2, delay_ms=0)
    second = pull(rig, 0, topic=RETRY).rows[1][3]
    found = pull(rig, second, topic=RETRY, commit_offset=second)
    assert (texts(found), found.acked, found.left) == (["b", "c"], 1, False)
    assert (rig.numbers().retry, rig.numbers().acked) == (2, 1)
    assert commit(rig, found.next_offset, topic=RETRY) == 2
    asked = [ask.Pull(RETRY, "", 0, 0, commit_offset=0), ask.Pull(RETRY, "g", 0, 0, commit_offset=1 << 40)]
    assert [refusal(one) for one in rig.run(*asked)] == ["INVALID_FIELD"] * 2


def test_a_retry_that_cannot_be_read_is_passed_over(rig: Rig) -> None:
    pulling(rig)
    one_by_one(rig, "a", "b")
    send_back(rig, 0, 1, delay_ms=0)
    rig.damage(0)
    assert [place[0] for place in pulled_again(rig)] == ["b"]
    rig.do(ask.DeleteGroup("g"))  # nobody has met the damage: the checker would tell of it
    rig.do(ask.DeleteTopic("t"))


# ── Dead-letter topics ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_dead_letter_topic_is_pulled_like_any_other(rig: Rig) -> None:
    pulling(rig).send("a", "b")
    send_back(rig, 0, 1, reject=True)
    assert places(pull(rig, 0, topic="%DLQ%g", group="")) == [("a", 0, 1), ("b", 1, 1)]
    switch(rig, "PULL", topic="%DLQ%g")
    assert pull(rig, 2, topic="%DLQ%g", commit_offset=2).status == "OFFSET_OVERFLOW_ONE"
    assert committed(rig, "%DLQ%g") == [2]


def test_dead_letters_that_were_redriven_are_not_pulled_any_more(rig: Rig) -> None:
    pulling(rig).send("a", "b", "c")
    send_back(rig, 0, 1, 2, reject=True)
    rig.do(operations.RedrivePiece("g", offsets=(0, 2)))
    assert places(pull(rig, 0, topic="%DLQ%g", group="")) == [("b", 1, 1)]
    assert pull(rig, 2, topic="%DLQ%g", group="")[:3] == ("MESSAGE_WAS_REMOVING", [], 3)
    assert sorted(place[::2] for place in pulled_again(rig)) == [("a", 1), ("c", 1)], "attempts begin anew"
