"""Topics with unique ids: a message id is stored once in the topic's time, whatever happens in between (F.09)."""

import itertools
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import Place
from popmq_server.embedded.rules.sending import unique
from popmq_server.embedded.store.keys import U32
from popmq_server.errors import Refused
from popmq_server.values.message import Extra
from tests.engine.rig import DAY, HOUR, KEEP, MINUTE, SECOND, Rig, bodies, message


def topic(rig: Rig, window_ms: int = HOUR, kind: str = "NORMAL", queues: int = 1, name: str = "t") -> None:
    rig.do(ask.CreateTopic(name, queues, False, KEEP, kind, unique_ids_ms=window_ms))


def send(rig: Rig, *texts: str, topic: str = "t", **more: Any) -> list[Place]:
    """Messages whose bodies are "id" or "id:body"; where each of them is."""
    entries = tuple(message(text.partition(":")[2] or text, text.partition(":")[0]) for text in texts)
    places = rig.do(ask.Send(topic, entries, **more)).places
    assert places is not None
    return list(places)


def window(rig: Rig, ms: int) -> None:
    rig.do(ask.UpdateTopic("t", 0, None, (("unique_ids_ms", ms),)))


def stored(rig: Rig) -> list[str]:
    return [row[0].decode(errors="replace")[2:3] for row in rig.browse("t").rows]


@pytest.mark.slow
def test_a_second_send_of_an_id_answers_the_place_of_the_first_and_stores_nothing(rig: Rig) -> None:
    topic(rig)
    rig.group()
    assert send(rig, "a", "b") == [Place(0, 0), Place(0, 1)]
    assert send(rig, "c", "b:again", "a:again") == [
        Place(0, 2),
        Place(0, 1, duplicate=True),
        Place(0, 0, duplicate=True),
    ]
    assert bodies(rig.pop()) == ["a", "b", "c"]


def test_an_id_that_stands_twice_in_one_request_is_stored_once(rig: Rig) -> None:
    topic(rig, queues=4)
    assert send(rig, "a", "a:2", "b", "a:3") == [
        Place(0, 0),
        Place(0, 0, duplicate=True),
        Place(0, 1),
        Place(0, 0, duplicate=True),
    ]
    assert send(rig, "a", "a")[0] == send(rig, "a", "a")[1] == Place(0, 0, duplicate=True)


def test_an_id_counts_among_requests_of_one_commit(rig: Rig) -> None:
    topic(rig)
    first, second = rig.run(ask.Send("t", (message("a"),)), ask.Send("t", (message("a"),)))
    assert (first.places, second.places) == ((Place(0, 0),), (Place(0, 0, duplicate=True),))


def test_a_refused_message_does_not_take_its_id(rig: Rig) -> None:
    topic(rig)
    wrong = message("a")._replace(extra=Extra(priority=3))
    (refused, stored) = rig.do(ask.Send("t", (wrong, message("a")))).places
    assert isinstance(refused, Refused)
    assert stored == Place(0, 0)


def test_a_unique_id_is_scoped_to_its_topic(rig: Rig) -> None:
    topic(rig)
    topic(rig, name="u")
    rig.topic("plain")
    assert send(rig, "a") == send(rig, "a", topic="u") == [Place(0, 0)]
    rig.send("a", topic="plain")
    rig.send("a", topic="plain")
    assert rig.browse("plain").max_offset == 2


@pytest.mark.parametrize("window_ms", [1, 999, SECOND, 1001, 10 * SECOND, HOUR, DAY])
@pytest.mark.parametrize("begin_ms", [0, 1, 499, 500, 999])
def test_the_time_is_exact(rig: Rig, window_ms: int, begin_ms: int) -> None:
    topic(rig, window_ms)
    rig.advance(begin_ms)
    assert send(rig, "a") == [Place(0, 0)]
    rig.advance(window_ms - 1)
    assert send(rig, "a") == [Place(0, 0, duplicate=True)]
    rig.advance(1)
    assert send(rig, "a") == [Place(0, 1)], "counted from the first, not from its repeats"
    rig.advance(window_ms - 1)
    assert send(rig, "a") == [Place(0, 1, duplicate=True)]


def test_an_id_outlives_crashes_and_restarts(rig: Rig) -> None:
    topic(rig)
    send(rig, "a")
    rig.crash()
    assert send(rig, "a") == [Place(0, 0, duplicate=True)]
    rig.restart()
    assert send(rig, "a", "b") == [Place(0, 0, duplicate=True), Place(0, 1)]


def test_an_id_outlives_its_message(rig: Rig) -> None:
    """What retention dropped was stored all the same: a late repeat must not bring it back."""
    rig.do(ask.CreateTopic("t", 1, True, MINUTE, unique_ids_ms=HOUR))
    send(rig, "a")
    rig.advance(5 * MINUTE)
    assert rig.read("log") == []
    assert send(rig, "a") == [Place(0, 0, duplicate=True)]


def test_a_repeated_request_number_gets_the_first_answer_with_its_duplicates(rig: Rig) -> None:
    topic(rig)
    send(rig, "b")
    places = send(rig, "a", "b", producer_id="p", request_number=1)
    again = rig.do(ask.Send("t", (message("a"), message("b")), "p", 1))
    assert again.duplicate
    assert again.places == tuple(places) == (Place(0, 1), Place(0, 0, duplicate=True))


def test_a_shorter_time_forgets_older_ids_at_once(rig: Rig) -> None:
    topic(rig, DAY)
    send(rig, "old")
    rig.advance(HOUR)
    send(rig, "young")
    window(rig, HOUR)
    assert send(rig, "old", "young") == [Place(0, 2), Place(0, 1, duplicate=True)]


def test_a_longer_time_still_finds_ids_that_were_not_swept(rig: Rig) -> None:
    topic(rig, 10 * MINUTE)
    send(rig, "a")
    rig.skip(9 * MINUTE)
    window(rig, DAY)
    rig.advance(12 * HOUR)
    assert send(rig, "a") == [Place(0, 0, duplicate=True)]
    rig.advance(12 * HOUR)
    assert send(rig, "a") == [Place(0, 1)]


def test_the_time_may_change_again_and_again(rig: Rig) -> None:
    """A duplicate was stored within the present time; an id younger than every time so far is always known."""
    topic(rig, MINUTE)
    sent: dict[str, dict[int, int]] = {}  # id → offset → stored ms
    rounds = itertools.cycle([MINUTE, DAY, 7 * SECOND, HOUR, 3 * SECOND, 10 * MINUTE])
    for number, wide in zip(range(60), rounds, strict=False):
        window(rig, wide)
        name = str(number % 7)
        (place,) = send(rig, name)
        if place.duplicate:
            assert rig.now - sent[name][place.offset] < wide
        else:
            sent.setdefault(name, {})[place.offset] = rig.now
        (again,) = send(rig, name)
        assert (again.duplicate, again.offset) == (True, place.offset)
        rig.advance(1500)


def test_old_ids_are_forgotten_in_bounded_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unique, "SWEEP_MAX", 10)
    topic(rig, 10 * MINUTE)
    send(rig, *(str(number) for number in range(35)))
    rig.skip(15 * MINUTE + SECOND)
    left = [35]
    while rig.due:
        rig.run()
        left.append(len(rig.read("uid")))
    assert left[-1] == 0
    assert all(before - after <= 10 for before, after in itertools.pairwise(left))


def test_ids_that_still_count_are_kept_by_the_sweep(rig: Rig) -> None:
    topic(rig, 10 * MINUTE)
    for number in range(30):
        send(rig, str(number))
        rig.advance(MINUTE)
        ends = {U32.unpack_from(key, 4)[0] for key, _ in rig.read("uid")}
        assert len(ends) <= 4, "three that count, and one that the next minute takes"
    assert [place.duplicate for place in send(rig, *map(str, range(30)))] == [False] * 21 + [True] * 9


def test_a_deleted_topic_takes_its_ids_along(rig: Rig) -> None:
    topic(rig)
    send(rig, "a")
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    assert rig.read("uid") == []
    topic(rig)
    assert send(rig, "a") == [Place(0, 0)]


def test_an_aborted_command_takes_its_ids_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    topic(rig)
    put = unique.Ids.remember

    def broken(self: unique.Ids, stored: Any, place: Place) -> None:
        put(self, stored, place)
        if stored.message_id == "b":
            raise ZeroDivisionError

    monkeypatch.setattr(unique.Ids, "remember", broken)
    assert isinstance(rig.run(ask.Send("t", (message("a"), message("b"))))[0], Refused)
    monkeypatch.undo()
    assert send(rig, "a", "b") == [Place(0, 0), Place(0, 1)]


# ── What is not visible yet ──────────────────────────────────────────────────────────────────────────────────────────


def delayed(text: str) -> Any:
    return message(text)._replace(extra=Extra(delay_ms=HOUR))


def half(text: str) -> Any:
    return message(text)._replace(extra=Extra(transaction=True))


def release(rig: Rig, place: Place) -> None:
    """Recalls the delayed, rolls the half message back."""
    if place.recall_handle:
        rig.do(ask.Recall("t", place.recall_handle))
    else:
        rig.do(ask.EndTransaction((ask.End(place.transaction_id, False),)))


def test_a_repeat_of_a_delayed_or_half_message_gets_the_same_name(rig: Rig) -> None:
    topic(rig, kind="DELAY")
    ids = (delayed("a"), half("b"), delayed("a"), half("b"), message("a"))
    sent = rig.do(ask.Send("t", ids)).places
    assert sent[0].recall_handle
    assert sent[1].transaction_id
    again = tuple(place._replace(duplicate=True) for place in sent[:2])
    assert sent[2:] == (*again, again[0])
    rig.restart()
    assert rig.do(ask.Send("t", ids)).places == (*again, *again, again[0])


@pytest.mark.parametrize("make", [delayed, half])
def test_a_recalled_or_rolled_back_message_frees_its_unique_id(rig: Rig, make: Any) -> None:
    topic(rig, kind="DELAY")
    (place,) = rig.do(ask.Send("t", (make("a"),))).places
    assert rig.do(ask.Send("t", (make("a"),))).places[0].duplicate
    release(rig, place)
    (second,) = rig.do(ask.Send("t", (make("a"),))).places
    assert not second.duplicate
    assert second != place


def test_a_committed_message_that_is_recalled_gives_its_id_free(rig: Rig) -> None:
    topic(rig, kind="DELAY")
    both = message("a")._replace(extra=Extra(transaction=True, delay_ms=HOUR))
    (place,) = rig.do(ask.Send("t", (both,))).places
    (ended,) = rig.do(ask.EndTransaction((ask.End(place.transaction_id, True),)))
    assert rig.do(ask.Send("t", (both,))).places == (ended.place._replace(duplicate=True),)
    release(rig, ended.place)
    assert not rig.do(ask.Send("t", (both,))).places[0].duplicate


def test_the_time_of_a_half_messages_id_counts_from_its_send(rig: Rig) -> None:
    topic(rig, kind="DELAY")
    (place,) = rig.do(ask.Send("t", (half("a"),))).places
    rig.advance(HOUR - 1)
    rig.do(ask.EndTransaction((ask.End(place.transaction_id, True),)))
    assert rig.do(ask.Send("t", (message("a"),))).places == (Place(0, 0, duplicate=True),)
    rig.advance(1)
    assert rig.do(ask.Send("t", (message("a"),))).places == (Place(0, 1),)


def test_a_commit_does_not_take_back_an_id_whose_time_is_over(rig: Rig) -> None:
    topic(rig, kind="DELAY")
    (place,) = rig.do(ask.Send("t", (half("a"),))).places
    rig.advance(HOUR)
    assert rig.do(ask.Send("t", (message("a"),))).places == (Place(0, 0),)
    rig.do(ask.EndTransaction((ask.End(place.transaction_id, True),)))
    assert rig.do(ask.Send("t", (message("a"),))).places == (Place(0, 0, duplicate=True),)
