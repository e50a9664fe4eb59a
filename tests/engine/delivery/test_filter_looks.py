"""How much one pop with a filter looks at, how owners see it, and that exactly what matches is delivered."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import pick
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused
from popmq_server.values.filters import filter as filters
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing
from tests.engine.conftest import MakeRig
from tests.engine.filtering import BLUE, RED, send, set_filter, shop, tagged
from tests.engine.rig import KEEP, MINUTE, Delivery, Rig, bodies, deliveries, message, numbered
from tests.known import known

# ── How much one pop looks at ────────────────────────────────────────────────────────────────────────────────────────


def looks(rig: Rig, **asked: object) -> tuple[int, list[Delivery]]:
    """The number of looks until the end, repeated as the broker does, and the bodies found."""
    count = 1
    while (popped := rig.popped(**asked)).again:  # type: ignore[arg-type]
        assert not popped.rows
        count += 1
    return count, deliveries(popped)


@pytest.mark.mechanism("S0.34")
@pytest.mark.parametrize(
    ("asked", "bound"),
    [(RED, "SCAN_UNITS_MAX"), (("sql92", "TAGS = 'red'"), "REJECTIONS_MAX")],
    ids=["tag: entries", "sql92: messages"],
)
def test_a_look_is_bounded_and_says_that_there_is_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, str], bound: str
) -> None:
    monkeypatch.setattr(pick, bound, 100)
    shop(rig)
    send(rig, *tagged(*numbered("blue", 450), "red1"))
    count, rows = looks(rig, filter=asked)
    assert bodies(rows) == ["red1"]
    assert count == 5
    assert rig.numbers().filtered == 450


@pytest.mark.slow
def test_a_look_that_was_cut_short_moves_the_offset(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "SCAN_UNITS_MAX", 100)
    shop(rig)
    send(rig, *tagged(*numbered("blue", 450)))
    popped = rig.popped(filter=RED)
    assert (popped.rows, popped.again, popped.rest) == ([], True, 350)
    assert rig.numbers().filtered == 100
    rig.restart()
    assert looks(rig) == (4, [])


def test_a_look_that_just_reached_the_end_is_not_cut_short(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "SCAN_UNITS_MAX", 100)
    shop(rig)
    send(rig, *tagged(*numbered("blue", 200)))
    assert looks(rig, filter=RED) == (2, [])


def test_a_look_that_found_something_answers_with_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "REJECTIONS_MAX", 10)
    shop(rig)
    send(rig, *tagged("red1", *numbered("blue", 100), "red2"))
    popped = rig.popped(filter=("sql92", "TAGS = 'red'"))
    assert (len(popped.rows), popped.again) == (1, False)
    assert popped.rest > 0


def test_dropping_many_retries_is_bounded_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "REJECTIONS_MAX", 10)
    shop(rig)
    send(rig, *tagged(*numbered("red", 35)))
    rig.release(rig.pop(35), delay_ms=0)
    set_filter(rig, *BLUE)
    assert looks(rig) == (4, [])
    assert rig.numbers().filtered == 35


def test_a_look_without_a_filter_is_not_cut_short(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "SCAN_UNITS_MAX", 10)
    monkeypatch.setattr(pick, "REJECTIONS_MAX", 10)
    shop(rig, queues=3)
    for _ in range(3):
        send(rig, *tagged(*numbered("blue", 20)))
    assert len(rig.pop(60)) == 60


@pytest.mark.slow
def test_several_queues_share_one_bound_and_all_are_reached(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "SCAN_UNITS_MAX", 100)
    shop(rig, queues=4)
    for place in range(4):
        send(rig, *tagged(*numbered("blue", 90), f"red{place}"))
    found: list[str] = []
    while len(found) < 4:
        found += bodies(looks(rig, filter=RED)[1])
    assert sorted(found) == ["red0", "red1", "red2", "red3"]


def test_many_matches_are_not_looked_for_beyond_the_batch(rig: Rig) -> None:
    """A pop with a dense filter scans only its batch: later entries are not scanned again with every pop."""
    shop(rig)
    send(rig, *tagged(*numbered("red", 3000)))
    tx = Tx(rig.core.state, rig.store, rig.now)
    group, topic = readers.group(tx, "g"), registry.topic(tx, "t")
    assert group is not None
    assert topic is not None
    plan = pick.Pick(tx, group, topic, pick.Bounds(8, 1 << 20, wanted=filters.make(*RED)))
    plan.take_queue(0)
    tx.abort()
    assert len(plan.rows) == 8
    assert pick.SCAN_UNITS_MAX - plan.units_left == 8


# ── Owners ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_seals_matching_messages_and_replays_them(rig: Rig) -> None:
    shop(rig)
    rig.attach(topic="t")
    send(rig, *tagged("red1", "blue1", "red2"))
    first = rig.seal(1, filter=RED)
    again = rig.seal(1)
    assert bodies(deliveries(first)) == bodies(deliveries(again)) == ["red1", "red2"]
    assert first.sealed == (2, True, 0, 0)
    assert rig.ack_up_to(1) == 2
    assert (rig.numbers().acked, rig.numbers().filtered) == (2, 1)


def test_a_token_with_another_filter_is_refused_and_seals_nothing(rig: Rig) -> None:
    shop(rig)
    rig.pop(filter=RED)
    rig.attach(topic="t")
    with pytest.raises(Refused, match="blue"):
        rig.seal(1, filter=BLUE)
    assert rig.read("tok") == []


def test_a_token_that_was_cut_short_is_not_the_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its empty set is sealed like any other; the reader goes on with the next chunk."""
    monkeypatch.setattr(pick, "SCAN_UNITS_MAX", 100)
    shop(rig)
    rig.attach(topic="t")
    send(rig, *tagged(*numbered("blue", 150), "red1"))
    sets = [rig.seal(1, chunk=chunk, filter=RED) for chunk in range(2)]
    assert [len(one.rows) for one in sets] == [0, 1]
    assert [one.sealed for one in sets] == [(0, False, 0, 0), (1, True, 0, 0)]


def test_an_owner_loses_messages_of_a_released_set_that_a_new_filter_drops(rig: Rig) -> None:
    shop(rig)
    rig.attach(topic="t")
    send(rig, *tagged("red1", "blue1"))
    rig.seal(1, filter=("tag", "red||blue"))
    rig.advance(MINUTE)
    set_filter(rig, *RED)
    assert bodies(rig.pop()) == ["red1"]
    replayed = rig.seal(1)
    assert (replayed.rows, replayed.sealed) == ([], (2, True, 2, 0))
    assert rig.numbers().filtered == 1


# ── Anything ─────────────────────────────────────────────────────────────────────────────────────────────────────────


TAGS = ["red", "blue", "green", ""]
WANTED = {
    "red": ["red"],
    "red||green": ["red", "green"],
    "TAGS <> 'red'": ["blue", "green"],
    "TAGS IS NULL": [""],
    "*": TAGS,
}

#: A folder for each example.
_RIGS = itertools.count()


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.sampled_from(TAGS), min_size=1, max_size=30), min_size=1, max_size=8),
    st.sampled_from([RED, ("tag", "red||green"), ("sql92", "TAGS <> 'red'"), ("sql92", "TAGS IS NULL"), ("tag", "*")]),
    st.integers(1, 9),
    st.integers(3, 50),
)
def test_only_matching_messages_are_delivered_in_the_order_of_their_queue(
    make_rig: MakeRig, requests: list[list[str]], asked: tuple[str, str], batch: int, bound: int
) -> None:
    wanted = WANTED[asked[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pick, "SCAN_UNITS_MAX", bound)
        patch.setattr(pick, "REJECTIONS_MAX", bound)
        rig = shop(make_rig(f"{next(_RIGS)}", map_bytes=1 << 22), queues=2)
        sent: dict[int, list[str]] = {0: [], 1: []}
        for place, tags in enumerate(requests):
            send(rig, *(message(f"{place}.{at}", tag=tag) for at, tag in enumerate(tags)))
            sent[place % 2] += [f"{place}.{at}" for at, tag in enumerate(tags) if tag in wanted]
        got: dict[int, list[str]] = {0: [], 1: []}
        while rows := looks(rig, filter=asked, max_messages=batch)[1]:
            rig.ack(rows)
            for row in rows:
                got[row.queue].append(row.body)
    assert got == sent
    total = sum(map(len, requests))
    assert known(rig.numbers().acked) + known(rig.numbers().filtered) == total


# ── FIFO topics ──────────────────────────────────────────────────────────────────────────────────────────────────────


def fifo_shop(rig: Rig) -> Rig:
    """FIFO topic t and group g, which has not named it."""
    rig.do(ask.CreateTopic("t", 1, False, KEEP, "FIFO"))
    rig.group("g")
    return rig


def in_line(*texts: str) -> list[Outgoing]:
    """FIFO messages: `a-red1` is of message group a, its tag is red."""
    made = []
    for text in texts:
        message_group, _, tag = text.rstrip("0123456789").partition("-")
        one = message(text, tag=tag)
        field = pb.Message(message_group=message_group).SerializeToString()
        made.append(one._replace(data=one.data + field, extra=Extra(message_group)))
    return made


@pytest.mark.parametrize("asked", [RED, ("sql92", "TAGS = 'red'")], ids=["tag", "sql92"])
def test_a_fifo_topic_keeps_the_order_of_matching_messages(rig: Rig, asked: tuple[str, str]) -> None:
    fifo_shop(rig)
    send(rig, *in_line("a-blue1", "a-red2", "a-blue3", "a-red4", "b-blue1", "a-red5"))
    (first,) = rig.pop(1, filter=asked)
    assert first.body == "a-red2"
    assert rig.pop() == [], "a-red4 waits behind a-red2, and blue ones wait for nobody"
    assert rig.numbers().waiting == 2
    rig.ack([first])
    assert bodies(rig.pop()) == ["a-red4", "a-red5"]
    assert rig.numbers().filtered == 3


def test_waiting_messages_of_a_fifo_topic_are_filtered_by_the_new_filter(rig: Rig) -> None:
    fifo_shop(rig)
    send(rig, *in_line("a-red1", "a-blue2", "a-red3"))
    rig.release(rig.pop(filter=("tag", "red||blue")), delay_ms=0)
    set_filter(rig, *BLUE)
    assert bodies(rig.pop()) == ["a-blue2"]
    assert (rig.numbers().waiting, rig.numbers().filtered) == (0, 2)


def reds_wait(rig: Rig, count: int, *more: str) -> None:
    """`count` red messages wait in message group a, and the filter is blue now."""
    fifo_shop(rig)
    send(rig, *in_line(*(f"a-red{number}" for number in range(count)), *more))
    rig.release(rig.pop(filter=("tag", "red||blue")), delay_ms=0)
    set_filter(rig, *BLUE)


def test_messages_that_do_not_match_do_not_use_up_the_share_of_their_message_group(rig: Rig) -> None:
    reds_wait(rig, 3, "a-blue4")
    assert bodies(rig.pop(1)) == ["a-blue4"]


def test_waiting_messages_that_do_not_match_are_read_in_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "REJECTIONS_MAX", 2)
    reds_wait(rig, 3, "a-blue4")
    answers = [rig.popped() for _ in range(2)]
    assert [(answer.again, len(answer.rows)) for answer in answers] == [(True, 0), (False, 1)]
