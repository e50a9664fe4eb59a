"""The last hour of numbers: the ring, sums over it, and its bytes in a file. Numbers come from the tests."""

import zlib
from collections.abc import Iterable

import pytest

from popmq_server.monitoring import history as ring
from popmq_server.monitoring import history_format
from popmq_server.monitoring.history import (
    HOUR_MS,
    POINTS,
    STEP_MS,
    BrokerPoint,
    History,
    Pair,
    PairPoint,
    Point,
    Sums,
    TopicPoint,
)

BEGAN_MS = 1_700_000_000_000


def sampled(history: History, now_ms: int, topics: dict[str, float], pairs: dict[Pair, PairPoint]) -> None:
    """A sample of topics that were sent to at these rates, and of pairs."""
    history.begin(now_ms)
    for topic, rate in topics.items():
        history.note_topic(topic, TopicPoint(rate, 100 * rate, 1000))
    for pair, row in pairs.items():
        history.note_pair(pair, row)
    history.end(TopicPoint(sum(topics.values())), PairPoint(), BrokerPoint(used_bytes=now_ms - BEGAN_MS))


def filled(samples: int, **topics: float) -> History:
    history = History()
    for number in range(samples):
        sampled(history, BEGAN_MS + number * STEP_MS, topics or {"orders": number}, {})
    return history


def summed(history: History, topics: Iterable[str], pairs: Iterable[Pair], now_ms: int) -> list[Point]:
    sums = Sums(history, topics, pairs, now_ms)
    while sums.take():
        pass
    return sums.points()


def test_the_last_hour_is_kept_and_nothing_before_it() -> None:
    history = filled(POINTS * 3 + 7)
    now_ms = BEGAN_MS + (POINTS * 3 + 6) * STEP_MS
    points = history.whole(now_ms)
    assert [point.time_ms for point in points] == list(range(now_ms - HOUR_MS + STEP_MS, now_ms + 1, STEP_MS))
    assert [point.topic.sent_per_s for point in points] == list(range(POINTS * 2 + 7, POINTS * 3 + 7))
    assert [point.topic.sent_per_s for point in summed(history, ["orders"], [], now_ms)] == [
        point.topic.sent_per_s for point in points
    ]


def test_a_topic_has_no_points_of_the_time_before_it_was_created() -> None:
    history = filled(3)
    for number in (3, 4):
        sampled(history, BEGAN_MS + number * STEP_MS, {"orders": 1, "new": 2}, {})
    now_ms = BEGAN_MS + 4 * STEP_MS
    assert [point.topic.sent_per_s for point in summed(history, ["new"], [], now_ms)] == [2, 2]
    assert [point.topic.sent_per_s for point in summed(history, ["new", "orders"], [], now_ms)] == [0, 1, 2, 3, 3]
    assert summed(history, ["never"], [], now_ms) == []


def test_sums_are_of_one_moment_and_dead_letters_of_a_group_count_once() -> None:
    history = History()
    pairs = {
        ("billing", "orders"): PairPoint(1, 2, 30, 4, 5, oldest_s=60, dead=7),
        ("billing", "returns"): PairPoint(1, 2, 30, 4, 5, oldest_s=600, dead=7),
        ("audit", "orders"): PairPoint(1, 2, 30, 4, 5, oldest_s=6, dead=1),
    }
    sampled(history, BEGAN_MS, {"orders": 1, "returns": 2}, pairs)
    sums = Sums(history, ["orders", "returns"], pairs, BEGAN_MS)
    assert sums.take()
    sampled(history, BEGAN_MS + STEP_MS, {"orders": 9, "returns": 9}, {})
    assert not sums.take()
    (point,) = sums.points()
    assert point == Point(BEGAN_MS, TopicPoint(3, 300, 2000), PairPoint(3, 6, 90, 12, 15, 600, 8), None)


def test_dead_letters_of_a_group_count_also_before_it_named_another_topic() -> None:
    history, pairs = History(), {("billing", "orders"): PairPoint(dead=7)}
    sampled(history, BEGAN_MS, {"orders": 1}, pairs)
    pairs["billing", "returns"] = PairPoint(dead=8)
    sampled(history, BEGAN_MS + STEP_MS, {"orders": 1}, pairs | {("billing", "orders"): PairPoint(dead=8)})
    assert [point.pair.dead for point in summed(history, [], pairs, BEGAN_MS + STEP_MS)] == [7, 8]


def test_what_is_gone_and_what_is_forgotten_has_no_series() -> None:
    history = filled(2, orders=1, returns=1)
    sampled(history, BEGAN_MS + 2 * STEP_MS, {"orders": 1}, {("billing", "orders"): PairPoint()})
    assert list(history.topics) == ["orders"]
    history.forget(group="billing")
    assert (list(history.topics), list(history.pairs)) == (["orders"], [])
    history.forget(topic="orders")
    assert not history.topics


def test_beyond_the_most_series_a_newcomer_is_left_out_until_another_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "TOPICS_MAX", 2)
    monkeypatch.setattr(ring, "PAIRS_MAX", 1)
    history = History()
    pairs = {("g", "a"): PairPoint(), ("g", "b"): PairPoint()}
    sampled(history, BEGAN_MS, {"a": 1, "b": 1, "c": 1}, pairs)
    assert (list(history.topics), list(history.pairs)) == (["a", "b"], [("g", "a")])
    assert history.left_out(["c"], [])
    assert history.left_out([], pairs)
    assert not history.left_out(["a", "b"], [("g", "a")])
    assert history.whole(BEGAN_MS)[0].topic.sent_per_s == 3
    sampled(history, BEGAN_MS + STEP_MS, {"b": 1, "c": 1}, {})
    sampled(history, BEGAN_MS + 2 * STEP_MS, {"b": 1, "c": 1}, {})
    assert list(history.topics) == ["b", "c"]
    assert not history.left_out(["c"], [])


@pytest.mark.parametrize("samples", [1, 5, POINTS, POINTS + 1, 3 * POINTS + 50])
@pytest.mark.parametrize("later_steps", [1, 20])
def test_a_file_continues_the_history(samples: int, later_steps: int) -> None:
    history = filled(samples)
    now_ms = BEGAN_MS + samples * STEP_MS
    sampled(history, now_ms, {"orders": 5, "new": 1}, {("billing", "new"): PairPoint(1, 2, 3, 4, 5, 6, 7)})
    later_ms = now_ms + later_steps * STEP_MS
    again = history_format.read(history_format.written(history), later_ms)
    assert again.whole(later_ms) == history.whole(later_ms)
    asked: list[tuple[list[str], list[Pair]]] = [(["orders"], []), (["new"], []), ([], [("billing", "new")])]
    for topics, pairs in asked:
        assert summed(again, topics, pairs, later_ms) == summed(history, topics, pairs, later_ms)
    for one in (history, again):
        sampled(one, later_ms, {"orders": 1, "new": 2}, {})
    assert again.whole(later_ms) == history.whole(later_ms)
    assert summed(again, ["new", "orders"], [], later_ms) == summed(history, ["new", "orders"], [], later_ms)


def test_points_of_an_hour_ago_and_of_a_later_time_are_not_read() -> None:
    raw = history_format.written(filled(10))
    assert history_format.read(raw, BEGAN_MS + 9 * STEP_MS + HOUR_MS).number == 0
    assert history_format.read(raw, BEGAN_MS + 4 * STEP_MS).number == 5
    assert history_format.read(raw, BEGAN_MS - 1).number == 0


def test_each_cut_and_each_changed_byte_of_a_file_is_noticed() -> None:
    raw = history_format.written(filled(4))
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 0x10
        for damaged in (raw[:place], bytes(changed)):
            with pytest.raises(ValueError, match=r"damaged|checksum|version"):
                history_format.read(damaged, BEGAN_MS)
    with pytest.raises(ValueError, match="version"):
        history_format.read(bytes(len(raw)), BEGAN_MS)


def test_a_body_that_unpacks_to_too_much_is_not_read() -> None:
    body = zlib.compress(bytes(2 * history_format._BYTES_MAX))
    raw = history_format._HEAD.pack(history_format.MAGIC, history_format.VERSION, zlib.crc32(body)) + body
    with pytest.raises(ValueError, match="damaged"):
        history_format.read(raw, BEGAN_MS)
