"""Send-back: pulled messages that could not be done come again, or are dead letters."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.errors import Refused
from popmq_server.values.limits import DELAYS_MS_DEFAULT
from tests.engine.pull_steps import RETRY, commit, pull, pulled_again, pulling, send_back, sums, switch
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, bodies, message, numbered, refusals
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo


@pytest.fixture
def shop(rig: Rig) -> Rig:
    """Group g has pulled and committed five messages of topic t."""
    pulling(rig).send(*numbered("m", 5))
    commit(rig, 5)
    return rig


def last(rig: Rig) -> int:
    """The number of the last entry of the retry topic."""
    return int(pull(rig, 0, topic=RETRY).rows[-1][3])


def test_a_message_sent_back_comes_again_after_its_delay_through_the_retry_topic(shop: Rig) -> None:
    assert send_back(shop, 2, delay_ms=MINUTE) == [(shop.now + MINUTE, False)]
    assert (pulled_again(shop), sums(shop)) == ([], (0, 0, 0, 1, 5))
    shop.advance(MINUTE - 1)
    assert pulled_again(shop) == []
    shop.advance(1)
    assert [place[::2] for place in pulled_again(shop)] == [("m2", 2)]
    assert sums(shop) == (0, 0, 1, 0, 5)
    assert commit(shop, last(shop) + 1, topic=RETRY) == 1
    assert sums(shop) == (0, 0, 0, 0, 6)


def test_a_message_sent_back_without_a_delay_is_there_at_once(shop: Rig) -> None:
    assert send_back(shop, 4, 0, delay_ms=0) == [(shop.now, False)] * 2
    assert [place[0] for place in pulled_again(shop)] == ["m4", "m0"], "in the order of the request"


def test_the_delays_are_those_of_the_group_by_attempts(shop: Rig) -> None:
    """The first retry after 10 s."""
    waited, at = [], shop.now
    for attempt in range(1, 4):
        number = 3 if attempt == 1 else last(shop)
        ((visible_ms, _),) = send_back(shop, number, retry=attempt > 1)
        waited.append(visible_ms - at)
        shop.advance(visible_ms - shop.now)
        at = shop.now
        assert [place[::2] for place in pulled_again(shop)] == [("m3", attempt + 1)]
    assert waited == [10 * SECOND, 30 * SECOND, 60 * SECOND] == list(DELAYS_MS_DEFAULT[:3])


def test_an_entry_that_is_sent_back_leaves_the_retry_topic(shop: Rig) -> None:
    send_back(shop, 0, 1, delay_ms=0)
    first = pulled_again(shop)[0][1]
    send_back(shop, first, retry=True, delay_ms=MINUTE)
    assert ([place[0] for place in pulled_again(shop)], sums(shop)) == (["m1"], (0, 0, 1, 1, 5))
    assert commit(shop, last(shop) + 1, topic=RETRY) == 1, "it is not among those that are done"
    shop.advance(MINUTE)
    assert [place[::2] for place in pulled_again(shop)] == [("m0", 3)]


@pytest.mark.mechanism("S2.55")
def test_a_message_sent_back_after_its_last_attempt_is_a_dead_letter_with_its_origin(rig: Rig) -> None:
    pulling(rig, max_attempts=2).send("a", "b")
    commit(rig, 2)
    send_back(rig, 1, delay_ms=0, reason="first")
    assert send_back(rig, last(rig), retry=True, reason="the bank is closed") == [(rig.now, True)]
    (letter,) = rig.dead()
    origin = letter.dead_letter
    assert (letter.body, origin.topic, origin.queue, origin.offset) == (b"b", "t", 0, 1)
    assert (origin.attempts, origin.reason, origin.dead_ms) == (2, "the bank is closed", rig.now)
    assert (rig.numbers().dead, sums(rig)) == (1, (0, 0, 0, 0, 2))


def test_a_group_with_one_attempt_sends_straight_to_the_dead_letters(rig: Rig) -> None:
    pulling(rig, max_attempts=1).send("a")
    assert send_back(rig, 0) == [(rig.now, True)]
    assert rig.dead()[0].dead_letter.reason == "no attempts left"


@pytest.mark.mechanism("S2.57")
def test_a_dead_letter_names_its_last_client_and_its_attempts_in_place(shop: Rig) -> None:
    messages = (ask.SentBack(0, 1, reject=True, attempts=3), ask.SentBack(0, 2, reject=True))
    shop.do(ask.SendBack("t", "g", messages, "worker-1"))
    told = [(letter.body, letter.dead_letter.attempts, letter.dead_letter.last_client) for letter in shop.dead()]
    assert told == [(b"m1", 3, "worker-1"), (b"m2", 1, "worker-1")]


def test_attempts_in_place_count_for_the_maximum_for_the_backoff_and_for_what_follows(rig: Rig) -> None:
    pulling(rig, max_attempts=4, delays_ms=(SECOND, MINUTE, HOUR)).send("a", "b")
    commit(rig, 2)
    results = rig.do(ask.SendBack("t", "g", (ask.SentBack(0, 0, attempts=3), ask.SentBack(0, 1, attempts=4))))
    assert results == [(rig.now + HOUR, False), (rig.now, True)]
    rig.advance(HOUR)
    assert [place[::2] for place in pulled_again(rig)] == [("a", 4)]
    low = ask.SentBack(0, last(rig), retry=True, attempts=1)
    assert rig.do(ask.SendBack("t", "g", (low,))) == [(rig.now, True)], "a lower number does not take attempts back"
    assert [letter.dead_letter.attempts for letter in rig.dead()] == [4, 4]


@pytest.mark.mechanism("S2.56")
@pytest.mark.parametrize(("max_attempts", "dead"), [(1, True), (2, False), (0, True)])
def test_a_consumer_may_name_another_maximum_for_one_message(rig: Rig, max_attempts: int, dead: bool) -> None:
    pulling(rig, max_attempts=1).send("a")
    ((_, dead_lettered),) = send_back(rig, 0, max_attempts=max_attempts)
    assert dead_lettered == dead


def test_a_rejected_message_is_a_dead_letter_at_once(shop: Rig) -> None:
    """A delay level below zero."""
    assert send_back(shop, 1, reject=True, reason="broken", delay_ms=HOUR) == [(shop.now, True)]
    assert [(letter.body, letter.dead_letter.attempts) for letter in shop.dead()] == [(b"m1", 1)]
    send_back(shop, 2, delay_ms=0)
    send_back(shop, last(shop), retry=True, reject=True)
    assert [(letter.body, letter.dead_letter.attempts) for letter in shop.dead()] == [(b"m1", 1), (b"m2", 2)]
    assert shop.numbers().retry == 0


@pytest.mark.mechanism("S2.54")
def test_a_message_is_found_at_its_place_or_not_at_all(shop: Rig) -> None:
    """Never the neighbour of a dropped message."""
    messages = (
        ask.SentBack(0, 5),
        ask.SentBack(0, 2**62),
        ask.SentBack(1, 0),
        ask.SentBack(65_536, 0),
        ask.SentBack(0, 1, retry=True),
        ask.SentBack(1, 1, retry=True),
        Refused("INVALID_FIELD", "as the api found", field="messages[6].reason"),
        ask.SentBack(0, 4, delay_ms=0),
    )
    results = shop.do(ask.SendBack("t", "g", messages))
    assert refusals(results) == [
        *("MESSAGE_NOT_FOUND", "MESSAGE_NOT_FOUND", "INVALID_FIELD", "INVALID_FIELD"),
        *("MESSAGE_NOT_FOUND", "INVALID_FIELD", "INVALID_FIELD", ""),
    ]
    fields = [result.field for result in results[:-1]]
    assert fields == [
        *("messages[0].offset", "messages[1].offset", "messages[2].queue", "messages[3].queue"),
        *("messages[4].offset", "messages[5].queue", "messages[6].reason"),
    ]
    assert [place[0] for place in pulled_again(shop)] == ["m4"], "a bad entry harms no other"


@pytest.mark.mechanism("S2.54")
def test_sending_back_a_dropped_or_damaged_message_is_refused(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    switch(rig, "PULL")
    rig.send("old")
    rig.advance(HOUR + MINUTE)
    rig.send("damaged")
    assert refusals(send_back(rig, 0)) == ["MESSAGE_NOT_FOUND"], "nor is its neighbour taken for it"
    rig.damage(0)
    pull(rig, 1)
    assert refusals(send_back(rig, 0, 1)) == ["MESSAGE_NOT_FOUND"] * 2


@pytest.mark.slow
def test_an_entry_stands_once_in_a_request(shop: Rig) -> None:
    send_back(shop, 0, delay_ms=0)
    number = last(shop)
    assert refusals(send_back(shop, number, number, retry=True, delay_ms=0)) == ["", "MESSAGE_NOT_FOUND"]
    assert len(pulled_again(shop)) == 1


@pytest.mark.mechanism("S2.51")
def test_only_groups_that_pull_send_back(shop: Rig) -> None:
    switch(shop, "POP")
    one = (ask.SentBack(0, 0),)
    asked = [ask.SendBack("t", "g", one), ask.SendBack("nobody", "g", one), ask.SendBack("t", "nobody", one)]
    assert refusals(shop.run(*asked)) == ["WRONG_CONSUME_MODE", "TOPIC_NOT_FOUND", "GROUP_NOT_FOUND"]


def test_a_message_sent_back_before_its_commit_is_counted_and_delivered_once(rig: Rig) -> None:
    pulling(rig).send(*numbered("m", 3))
    send_back(rig, 0, delay_ms=0)
    assert sums(rig) == (3, 0, 1, 0, 0)
    assert commit(rig, 3) == 3
    assert commit(rig, last(rig) + 1, topic=RETRY) == 1
    assert sums(rig) == (0, 0, 0, 0, 4)


@pytest.mark.mechanism("S2.52")
def test_a_message_that_was_sent_back_survives_a_crash(shop: Rig) -> None:
    send_back(shop, 0, delay_ms=0)
    send_back(shop, 1, delay_ms=MINUTE, reason="later")
    send_back(shop, 2, reject=True)
    shop.crash()
    assert (sums(shop), len(shop.dead())) == ((0, 0, 1, 1, 5), 1)
    shop.advance(MINUTE)
    assert [place[0] for place in pulled_again(shop)] == ["m0", "m1"]


def test_a_retry_holds_its_message_against_retention(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    switch(rig, "PULL")
    rig.send("a")
    commit(rig, 1)
    send_back(rig, 0, delay_ms=30 * MINUTE)
    rig.advance(30 * MINUTE)
    rig.advance(2 * HOUR)
    assert [place[0] for place in pulled_again(rig)] == ["a"]
    assert commit(rig, last(rig) + 1, topic=RETRY) == 1


def test_many_sent_back_with_one_delay_are_one_checkpoint(shop: Rig) -> None:
    send_back(shop, *range(5), delay_ms=MINUTE)
    send_back(shop, 0, 1, delay_ms=HOUR)
    assert len(shop.read("ck")) == 2


def test_the_retry_topic_is_browsed_with_origin_and_reason(shop: Rig) -> None:
    send_back(shop, 3, delay_ms=0, reason="no")
    ((data, _, queue, offset, attempts),) = shop.browse(RETRY).rows
    assert (queue, offset, attempts) == (0, 3, 1)
    assert b"m3" in data
    assert [value[-2:] for _, value in shop.read("rq")] == [b"no"]


def test_a_message_of_a_fifo_topic_that_was_sent_back_comes_through_the_retry_topic(rig: Rig) -> None:
    fifo_pair(rig)
    switch(rig, "PULL")
    send_fifo(rig, "a1", "a2")
    commit(rig, 2)
    send_back(rig, 0, delay_ms=MINUTE)
    send_back(rig, 1, delay_ms=0)
    rig.advance(MINUTE)
    assert ([place[0] for place in pulled_again(rig)], rig.numbers().waiting) == (["a2", "a1"], 0)


def test_messages_of_a_fifo_topic_that_were_sent_back_are_popped_in_order(rig: Rig) -> None:
    fifo_pair(rig)
    switch(rig, "PULL")
    send_fifo(rig, "a1", "a2", "a3", "b1")
    commit(rig, 4)
    send_back(rig, 0, delay_ms=MINUTE)
    send_back(rig, 1, 3, delay_ms=0)
    switch(rig, "POP")
    first = rig.pop()
    assert bodies(first) == ["b1"], "a2 waits for a1, which is in backoff"
    rig.ack(first)
    rig.advance(MINUTE)
    assert bodies(rig.pop()) == ["a1", "a2"]


@pytest.mark.mechanism("S2.59")
def test_messages_keep_all_that_they_were_sent_with(rig: Rig) -> None:
    """A retry is a pointer, the bytes are those of the first delivery."""
    pulling(rig)
    sent = message("a", keys=("k",), tag="x", properties={"p": "q"})
    rig.do(ask.Send("t", (sent,), bytes=1))
    send_back(rig, 0, delay_ms=0)
    assert pull(rig, 0, topic=RETRY).rows[0][0] == sent.data == pull(rig, 0).rows[0][0]
