"""Pop: whose turn it is, how much it takes, what it says is left, and what it steps over."""

from itertools import pairwise

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import pick
from popmq_server.errors import Refused
from popmq_server.values.records import IN_FLIGHT_MAX
from tests.engine.rig import HOUR, MINUTE, Delivery, Rig, bodies, deliveries, message, numbered, refusal, sending
from tests.known import known


def to_retry(rig: Rig, *texts: str) -> None:
    """Puts messages into the retry topic only."""
    rig.send(*texts)
    rig.release(rig.pop(len(texts)), delay_ms=0)


@pytest.mark.mechanism("S3.05")
def test_the_messages_of_one_request_stay_together_and_requests_go_round_the_queues(rig: Rig) -> None:
    rig.topic(queues=3)
    sent = [rig.send(f"{number}a", f"{number}b") for number in range(6)]
    assert [one.queue for one in sent] == [0, 1, 2, 0, 1, 2]
    assert [one.first for one in sent] == [0, 0, 0, 2, 2, 2]


@pytest.mark.mechanism("S1.38")
@pytest.mark.slow
def test_the_start_queue_goes_round(rig: Rig) -> None:
    rig.topic(queues=3)
    rig.group()
    for text in numbered("m", 12):
        rig.send(text)
    firsts = [rig.pop(1)[0].queue for _ in range(12)]
    assert sorted(firsts[:3]) == [0, 1, 2]
    assert all(after == (before + 1) % 3 for before, after in pairwise(firsts))


@pytest.mark.mechanism("S1.39")
def test_named_queues_are_the_only_ones_popped(rig: Rig) -> None:
    rig.topic(queues=4)
    rig.group()
    for text in numbered("m", 8):
        rig.send(text)
    assert {row.queue for row in rig.pop(queues=(1, 3))} == {1, 3}
    assert {row.queue for row in rig.pop()} == {0, 2}


@pytest.mark.mechanism("S2.27")
def test_a_queue_that_the_topic_does_not_have_is_refused(rig: Rig) -> None:
    rig.pair(queues=2)
    result = rig.run(ask.Pop("t", "g", queues=(2,)))[0]
    assert isinstance(result, Refused)
    assert (result.code, result.field) == ("INVALID_FIELD", "queues[0]")


@pytest.mark.mechanism("S1.36", "I.29")
def test_one_pop_in_five_starts_with_the_retry_topic(rig: Rig) -> None:
    rig.pair()
    to_retry(rig, *numbered("old", 20))
    rig.send(*numbered("new", 20))
    taken = [rig.pop(1)[0].body[:3] for _ in range(25)]
    retries = [place for place, text in enumerate(taken) if text == "old"]
    assert len(retries) == 5
    assert {after - before for before, after in pairwise(retries)} == {5}


@pytest.mark.mechanism("D.51")
def test_a_pop_is_not_empty_while_the_queues_or_the_retry_topic_have_messages(rig: Rig) -> None:
    rig.pair()
    rig.send(*numbered("new", 10))
    assert [len(rig.pop(1)) for _ in range(10)] == [1] * 10
    to_retry(rig, *numbered("old", 10))
    assert [len(rig.pop(1)) for _ in range(10)] == [1] * 10


@pytest.mark.mechanism("S1.35", "S1.40")
def test_a_pop_with_room_left_fills_up_from_the_retry_topic(rig: Rig) -> None:
    rig.pair()
    to_retry(rig, "old")
    rig.send("new")
    assert sorted(bodies(rig.pop())) == ["new", "old"]


def test_retries_come_oldest_first(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    rows = rig.pop()
    for place in (2, 0, 1):
        rig.release([rows[place]], delay_ms=0)
    assert bodies(rig.pop()) == ["c", "a", "b"]


@pytest.mark.mechanism("S1.51")
def test_rest_counts_what_the_visited_queues_and_the_retry_topic_still_have(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group()
    rig.send("a", "b", "c")
    rig.send("d", "e")
    assert rig.popped(max_messages=2).rest == 3
    assert rig.popped(max_messages=1, queues=(0,)).rest in (0, 1, 2)
    rig.release(rig.pop(1), delay_ms=0)
    assert rig.popped(max_messages=1).rest == rig.numbers().ready + rig.numbers().retry


@pytest.mark.mechanism("S0.35")
def test_a_byte_bound_is_kept_but_for_the_first_message(rig: Rig) -> None:
    rig.pair()
    size = len(message("x" * 100).data) + 20
    rig.send(*("x" * 100 for _ in range(5)))
    assert len(rig.pop(max_bytes=1)) == 1
    assert len(rig.pop(max_bytes=2 * size)) == 2
    assert len(rig.pop(max_bytes=2 * size - 1)) == 1


def test_a_message_that_did_not_fit_comes_first_in_the_next_pop(rig: Rig) -> None:
    rig.pair()
    rig.send("small", "x" * 1000, "last")
    assert bodies(rig.pop(max_bytes=200)) == ["small"]
    assert bodies(rig.pop(max_bytes=200)) == ["x" * 1000]
    assert bodies(rig.pop(max_bytes=200)) == ["last"]


def test_a_lease_ends_after_the_invisible_time_that_was_asked_or_the_groups_own(rig: Rig) -> None:
    rig.pair(invisible_ms=2 * MINUTE)
    rig.send("a")
    assert rig.popped(max_messages=1).due_ms == rig.now + 2 * MINUTE
    rig.send("b")
    assert rig.popped(max_messages=1, invisible_ms=HOUR).due_ms == rig.now + HOUR


def test_an_empty_pop_leases_nothing(rig: Rig) -> None:
    rig.pair()
    before = rig.read("ck"), rig.read("due")
    popped = rig.popped()
    assert (popped.rows, popped.ck_id, popped.due_ms) == ([], 0, 0)
    assert (rig.read("ck"), rig.read("due")) == before


# ── In flight ────────────────────────────────────────────────────────────────────────────────────────────────────────


def flood(rig: Rig, count: int) -> list[Delivery]:
    """Sends so many, and pops until nothing comes."""
    for start in range(0, count, 4000):
        rig.send(*numbered(f"{start}.", min(4000, count - start)))
    return drained(rig)


def drained(rig: Rig) -> list[Delivery]:
    rows: list[Delivery] = []
    while batch := rig.pop(4096, max_bytes=16 << 20):
        rows += batch
    return rows


@pytest.mark.mechanism("S1.45")
@pytest.mark.slow
def test_a_group_holds_ten_thousand_of_a_queue_and_an_ack_makes_place_and_wakes(rig: Rig) -> None:
    rig.pair()
    rows = flood(rig, IN_FLIGHT_MAX + 5)
    assert len(rows) == IN_FLIGHT_MAX
    assert rig.popped().rest == 5
    committed = rig.commit(ask.Ack("g", tuple(row.handle for row in rows[:3])))
    assert ("g", "t") in committed.woken
    assert len(rig.pop(4096)) == 3


@pytest.mark.mechanism("D.47")
@pytest.mark.slow
def test_a_full_queue_does_not_stop_the_others(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group()
    rig.run(sending(*numbered("q0.", IN_FLIGHT_MAX + 1)), sending("q1"))
    assert len(drained(rig)) == IN_FLIGHT_MAX + 1
    rig.send("q0")
    rig.send("q1 again")
    assert bodies(rig.pop()) == ["q1 again"]


@pytest.mark.mechanism("I.25")
@pytest.mark.slow
def test_messages_without_an_ack_do_not_raise_the_number_of_leases_beyond_the_limit(rig: Rig) -> None:
    rig.pair(max_attempts=1000)
    flood(rig, 3 * IN_FLIGHT_MAX)
    for _ in range(3):
        rig.advance(2 * MINUTE)
        drained(rig)
        assert known(rig.numbers().in_flight) <= 2 * IN_FLIGHT_MAX  # of the queue, and of the retry topic
    assert rig.numbers().retry == 2 * IN_FLIGHT_MAX


# ── What cannot be read ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pop_of_one_message_steps_over_damaged_ones(rig: Rig) -> None:
    rig.pair()
    for text in "abcd":
        rig.send(text)
    rig.damage(0, 1)
    assert bodies(rig.pop(1)) == ["c"]
    assert rig.numbers().quarantined == 2


def test_a_pop_of_one_steps_over_a_damaged_retry(rig: Rig) -> None:
    rig.pair()
    for text in "abc":
        rig.send(text)
    rig.release(rig.pop(), delay_ms=0)
    rig.damage(0)
    assert bodies(rig.pop(1)) == ["b"]
    assert (rig.numbers().quarantined, rig.numbers().retry) == (1, 1)


def test_a_pop_that_reaches_its_bound_of_skips_asks_to_run_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "SKIPS_MAX", 2)
    rig.pair()
    for text in "abc":
        rig.send(text)
    rig.damage(0, 1)
    popped = rig.popped(max_messages=1)
    assert (popped.rows, popped.again) == ([], True)
    assert bodies(rig.pop(1)) == ["c"]


# ── Who is asked ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S1.14", "I.08")
def test_pops_in_one_commit_share_nothing(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group()
    rig.run(sending(*numbered("a", 5)), sending(*numbered("b", 5)))
    answers = rig.run(*(ask.Pop("t", "g", max_messages=3) for _ in range(5)))
    places = [(row[2], row[3]) for answer in answers for row in answer.rows]
    assert len(places) == len(set(places)) == 10


@pytest.mark.mechanism("S1.07")
def test_clients_that_pop_one_queue_side_by_side_are_all_served(rig: Rig) -> None:
    """The leases of one client do not keep another one from the queue."""
    rig.topic(queues=1)
    rig.group()
    rig.send(*numbered("m", 8))
    popped = [rig.run(ask.Pop("t", "g", max_messages=1, client_id=f"c{place}"))[0] for place in range(8)]
    assert [bodies(deliveries(one)) for one in popped] == [[f"m{place}"] for place in range(8)]


@pytest.mark.mechanism("S2.25", "S2.26")
@pytest.mark.slow
def test_unknown_topics_and_groups_are_refused(rig: Rig) -> None:
    rig.topic()
    rig.group()
    assert refusal(rig.run(ask.Pop("x", "g"))[0]) == "TOPIC_NOT_FOUND"
    assert refusal(rig.run(ask.Pop("t", "x"))[0]) == "GROUP_NOT_FOUND"
