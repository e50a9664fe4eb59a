"""Filters at work: who fixes them, who replaces them, and what they pass over."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.topics.chunk import BLOCK_ENTRIES_MAX
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.outgoing import Outgoing, tag_hash
from popmq_server.values.records import Subscription
from tests.engine.filtering import BLUE, RED, send, set_filter, shop, tagged
from tests.engine.rig import MINUTE, Rig, bodies, message, numbered, refusal

BIG = ("sql92", "size > 5")


def sized(*sizes: int) -> list[Outgoing]:
    return [message(f"m{place}", properties={"size": str(size)}) for place, size in enumerate(sizes)]


def fixed(rig: Rig, group: str = "g") -> Subscription | None:
    state = rig.core.state
    return state.subscriptions.get((GroupId(state.ids["g", group]), TopicId(state.ids["t", "t"])))


# ── Whose filter it is ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S0.20")
def test_the_first_pop_fixes_the_filter_and_later_ones_need_not_name_it(rig: Rig) -> None:
    shop(rig)
    assert rig.pop(filter=RED) == []
    send(rig, *tagged("red1", "blue1", "red2"))
    assert bodies(rig.pop()) == ["red1", "red2"]
    assert fixed(rig) == Subscription("tag", "red")


@pytest.mark.mechanism("S2.23")
def test_another_filter_is_refused_with_both_named_and_the_cure(rig: Rig) -> None:
    shop(rig)
    rig.pop(filter=RED)
    before = rig.read("sub"), rig.read("poff")
    result = rig.run(ask.Pop("t", "g", filter=BLUE))[0]
    assert refusal(result) == "FILTER_CONFLICT"
    assert "'red'" in result.message
    assert "'blue'" in result.message
    assert result.action.endswith("popmq group update g --filter t=blue")
    assert result.field == "filter"
    assert (rig.read("sub"), rig.read("poff")) == before


def test_a_first_pop_without_a_filter_fixes_every_message(rig: Rig) -> None:
    shop(rig)
    rig.pop()
    assert refusal(rig.run(ask.Pop("t", "g", filter=RED))[0]) == "FILTER_CONFLICT"
    send(rig, *tagged("red1", "blue1"), message("plain"))
    assert bodies(rig.pop(filter=("tag", "*"))) == ["red1", "blue1", "plain"]


def test_the_same_filter_in_other_words_is_no_conflict(rig: Rig) -> None:
    shop(rig)
    rig.pop(filter=("tag", "red||blue"))
    rig.pop(filter=("tag", " blue || red "))
    rig.group("h")
    rig.pop(group="h", filter=("sql92", "size>5 and colour in('red')"))
    rig.pop(group="h", filter=("sql92", "size > 5 AND colour IN ('red')"))


def test_asking_for_numbers_or_an_owner_leaves_the_filter_to_the_first_pop(rig: Rig) -> None:
    shop(rig)
    rig.do(ask.Available("t", "g"))
    rig.attach(topic="t")
    assert fixed(rig) is None
    send(rig, *tagged("red1", "blue1"))
    assert bodies(rig.pop(filter=BLUE)) == ["blue1"]


def test_groups_filter_for_themselves(rig: Rig) -> None:
    shop(rig)
    rig.group("h")
    send(rig, *tagged("red1", "blue1", "red2"))
    assert bodies(rig.pop(filter=RED)) == ["red1", "red2"]
    assert bodies(rig.pop(group="h", filter=BLUE)) == ["blue1"]


def test_a_second_filter_in_the_commit_of_the_first_is_refused(rig: Rig) -> None:
    shop(rig)
    first, second = rig.run(ask.Pop("t", "g", filter=RED), ask.Pop("t", "g", filter=BLUE))
    assert (refusal(first), refusal(second)) == ("", "FILTER_CONFLICT")


@pytest.mark.slow
def test_a_filter_lives_through_a_restart_and_goes_with_its_group(rig: Rig) -> None:
    shop(rig)
    rig.pop(filter=BIG)
    rig.restart()
    assert fixed(rig) == Subscription(*BIG)
    rig.do(ask.DeleteGroup("g"))
    rig.settle()
    assert rig.read("sub") == []
    rig.group("g")
    assert rig.pop(filter=RED) == []


def test_a_filter_goes_with_its_topic(rig: Rig) -> None:
    shop(rig)
    set_filter(rig, *BIG)
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    assert rig.read("sub") == []


def test_an_attempt_that_is_repeated_with_another_filter_is_reported(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("red1"))
    rig.pop(filter=RED, client_id="c", attempt_id="1")
    assert rig.popped(filter=RED, client_id="c", attempt_id="1").replay
    assert refusal(rig.run(ask.Pop("t", "g", client_id="c", attempt_id="1", filter=BLUE))[0]) == "FILTER_CONFLICT"


# ── Replacing it ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S2.32")
def test_set_filter_replaces_it_from_the_next_pop_on(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("red1", "blue1"))
    assert bodies(rig.pop(filter=RED)) == ["red1"]
    assert set_filter(rig, *BLUE) == Subscription("tag", "blue")
    send(rig, *tagged("red2", "blue2"))
    assert bodies(rig.pop()) == ["blue2"]
    assert refusal(rig.run(ask.Pop("t", "g", filter=RED))[0]) == "FILTER_CONFLICT"


def test_filtered_messages_do_not_come_back_when_the_filter_changes(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("blue1", "red1", "blue2"))
    assert bodies(rig.pop(filter=RED)) == ["red1"]
    set_filter(rig, "", "")
    assert rig.pop() == []
    assert rig.numbers().filtered == 2


@pytest.mark.mechanism("S2.35")
def test_retries_that_do_not_match_any_more_are_dropped_and_counted(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("red1", "blue1", "red2"))
    rows = rig.pop(filter=("tag", "red||blue"))
    rig.release(rows, delay_ms=0)
    set_filter(rig, *BLUE)
    assert bodies(rig.pop()) == ["blue1"]
    numbers = rig.numbers()
    assert (numbers.retry, numbers.filtered, numbers.in_flight) == (0, 2, 1)
    assert rig.read("pin") == []


def test_retries_that_match_come_again(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("red1", "blue1"))
    rig.release(rig.pop(filter=RED), delay_ms=0)
    (again,) = rig.pop()
    assert (again.body, again.attempt) == ("red1", 2)


def test_set_filter_names_the_topic_for_a_group_that_has_not(rig: Rig) -> None:
    shop(rig)
    rig.group("late", start_from="LATEST")
    send(rig, *tagged("red1"))
    rig.do(ask.SetFilter("t", "late", RED))
    send(rig, *tagged("red2", "blue2"))
    assert bodies(rig.pop(group="late")) == ["red2"]


def test_set_filter_to_every_message_is_a_filter_too(rig: Rig) -> None:
    shop(rig)
    assert set_filter(rig, "", "") == Subscription("tag", "*")
    assert refusal(rig.run(ask.Pop("t", "g", filter=RED))[0]) == "FILTER_CONFLICT"


def test_set_filter_keeps_how_else_the_group_reads_the_topic(rig: Rig) -> None:
    shop(rig)
    rig.pop()
    state = rig.core.state
    where = (GroupId(state.ids["g", "g"]), TopicId(state.ids["t", "t"]))
    state.subscriptions.load(where, Subscription("tag", "*", "PULL", 3))
    assert set_filter(rig, *RED) == Subscription("tag", "red", "PULL", 3)


@pytest.mark.parametrize(("topic", "group", "code"), [("no", "g", "TOPIC_NOT_FOUND"), ("t", "no", "GROUP_NOT_FOUND")])
def test_set_filter_needs_its_topic_and_its_group(rig: Rig, topic: str, group: str, code: str) -> None:
    shop(rig)
    assert refusal(rig.run(ask.SetFilter(topic, group, RED))[0]) == code


def test_a_filter_that_cannot_be_is_refused_when_it_is_set(rig: Rig) -> None:
    shop(rig)
    rig.pop(filter=RED)
    assert refusal(rig.run(ask.SetFilter("t", "g", ("sql92", "size >")))[0]) == "FILTER_INVALID"
    assert fixed(rig) == Subscription("tag", "red")


# ── What it passes over ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S1.55", "I.27")
@pytest.mark.parametrize("asked", [RED, ("sql92", "TAGS = 'red'")], ids=["tag", "sql92"])
def test_messages_that_do_not_match_move_the_offset_and_make_no_checkpoint(rig: Rig, asked: tuple[str, str]) -> None:
    shop(rig)
    send(rig, *tagged(*numbered("blue", 50)))
    popped = rig.popped(filter=asked)
    assert (popped.rows, popped.ck_id, popped.rest, popped.again) == ([], 0, 0, False)
    assert (rig.read("ck"), rig.read("due"), rig.read("hist")) == ([], [], [])
    numbers = rig.numbers()
    assert (numbers.ready, numbers.filtered, numbers.in_flight) == (0, 50, 0)


@pytest.mark.parametrize("asked", [RED, ("sql92", "TAGS = 'red'")], ids=["tag", "sql92"])
def test_a_batch_takes_matching_messages_in_order_and_the_next_pop_continues_after_them(
    rig: Rig, asked: tuple[str, str]
) -> None:
    shop(rig)
    send(rig, *tagged("blue1", "red1", "red2", "blue2", "red3", "blue3", "blue4", "red4", "blue5"))
    rows = rig.pop(3, filter=asked)
    assert [(row.body, row.offset) for row in rows] == [("red1", 1), ("red2", 2), ("red3", 4)]
    assert rig.ack(rows) == [None] * 3
    assert bodies(rig.pop(3)) == ["red4"]
    assert rig.numbers().filtered == 5


def test_members_of_a_batch_with_gaps_are_leased_like_any_others(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("red1", "blue1", "red2", "blue2", "red3"))
    rows = rig.pop(filter=RED)
    rig.extend(rows[1:2], 10 * MINUTE)
    rig.restart()
    rig.advance(MINUTE)
    assert bodies(rig.pop()) == ["red1", "red3"]
    rig.advance(9 * MINUTE)
    assert bodies(rig.pop()) == ["red1", "red3", "red2"]


@pytest.mark.mechanism("S0.46")
def test_messages_with_a_twin_of_the_hash_are_distinguished_by_their_text(rig: Rig) -> None:
    shop(rig)
    twin = message("BB1", tag="BB")._replace(tag_hash=tag_hash("Aa"))
    send(rig, *tagged("Aa1"), twin, *tagged("Aa2"))
    assert bodies(rig.pop(filter=("tag", "Aa"))) == ["Aa1", "Aa2"]
    assert rig.numbers().filtered == 1


@pytest.mark.mechanism("S3.06")
def test_several_tags_and_messages_without_one(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("red1", "blue1", "green1", "red2"), message("none"))
    assert bodies(rig.pop(filter=("tag", "red || green"))) == ["red1", "green1", "red2"]


@pytest.mark.mechanism("S0.37", "S2.34", "S3.06")
def test_sql_decides_over_properties(rig: Rig) -> None:
    shop(rig)
    send(rig, *sized(1, 9, 5, 6), message("none"), message("odd", properties={"size": "large"}))
    assert bodies(rig.pop(filter=BIG)) == ["m1", "m3"]
    assert rig.numbers().filtered == 4


def test_a_message_that_does_not_match_needs_no_room_in_the_batch(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("red1"), message("x" * 5000, tag="blue"), *tagged("red2"))
    assert bodies(rig.pop(filter=RED, max_bytes=200)) == ["red1", "red2"]


def test_a_byte_bound_leaves_off_at_the_first_match_that_does_not_fit(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("red1", "blue1"), message("y" * 5000, tag="red"), *tagged("blue2", "red3"))
    assert bodies(rig.pop(filter=RED, max_bytes=200)) == ["red1"]
    assert [row.offset for row in rig.pop(max_bytes=200)] == [2]
    assert bodies(rig.pop(max_bytes=200)) == ["red3"]


def test_damaged_messages_among_those_that_match_are_set_aside_not_filtered(rig: Rig) -> None:
    shop(rig)
    for text in ("red1", "blue1", "red2", "blue2"):
        send(rig, *tagged(text))
    rig.damage(0)
    assert bodies(rig.pop(filter=RED)) == ["red2"]
    numbers = rig.numbers()
    assert (numbers.quarantined, numbers.filtered) == (1, 2)


def test_a_dead_letter_topic_is_filtered_like_any_other(rig: Rig) -> None:
    shop(rig)
    send(rig, *tagged("red1", "blue1"))
    rig.reject(rig.pop())
    rig.group("undertaker")
    assert bodies(rig.pop(topic="%DLQ%g", group="undertaker", filter=BLUE)) == ["blue1"]


def test_blocks_and_chunks_are_no_borders(rig: Rig) -> None:
    shop(rig)
    count = BLOCK_ENTRIES_MAX + 500
    send(rig, *(message(f"{place}", tag="red" if place % 1500 == 700 else "blue") for place in range(count)))
    assert bodies(rig.pop(filter=RED)) == ["700", "2200", "3700"]
    assert rig.numbers().filtered == count - 3
