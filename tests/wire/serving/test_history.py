"""GetHistory: the numbers of the last hour are those that the broker had at each time, also after a restart."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

import popmq
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.fsck.compact import compact_folder
from popmq_server.embedded.store.datafile.history_file import HISTORY_FILE
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.monitoring import history as ring
from popmq_server.monitoring.history import STEP_MS
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

T = TypeVar("T")
KEYS = """
[root]
secret = "root-secret-of-the-tests"
allow = ["*"]
[reader]
secret = "reader-secret-of-the-tests"
allow = ["receive:orders/billing"]
"""


def history(stubs: Stubs, topic: str = "", group: str = "") -> pb.GetHistoryResponse:
    answer: pb.GetHistoryResponse = stubs.admin.GetHistory(
        pb.GetHistoryRequest(topic=topic, group=group), timeout=CALL_S
    )
    return answer


def newest(stubs: Stubs, topic: str = "", group: str = "") -> pb.HistoryPoint:
    return history(stubs, topic, group).points[-1]


def test_a_point_has_the_numbers_of_get_stats(shop: Stubs, clock: FakeClock) -> None:
    shop.create_topic("returns", queues=1)
    shop.send(*(b"%d" % number for number in range(60)))
    shop.send(b"a", b"b", b"c", topic="returns")
    first = shop.pop(max_messages=20)
    shop.ack(*(one.handle for one in first.deliveries[:12]))
    shop.change(first.deliveries[12].handle, reject=pb.Reject(reason="broken"))
    shop.change(first.deliveries[13].handle, release=pb.Release(delay_ms=60_000))
    shop.pop(topic="returns", max_messages=1)
    clock.advance(STEP_MS)
    stats = shop.admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S)
    orders, returns = (next(row for row in stats.groups if row.topic == name) for name in (TOPIC, "returns"))
    for asked, rows in (((TOPIC, GROUP), [orders]), (("", GROUP), [orders, returns]), (("", ""), [orders, returns])):
        point = newest(shop, *asked)
        assert point.time_ms == clock.now_ms()
        assert point.backlog == sum(row.ready + row.retry + row.backoff + row.in_flight for row in rows)
        assert point.in_flight == sum(row.in_flight for row in rows)
        assert point.retries == sum(row.retry + row.backoff for row in rows) == 1
        assert point.oldest_age_ms == max(row.oldest_age_ms for row in rows) == STEP_MS
        assert point.dead == 1
        assert point.popped_per_s == pytest.approx((20 if len(rows) == 1 else 21) / 30)
        assert point.acked_per_s == pytest.approx(12 / 30)
        assert point.sent_per_s == pytest.approx((60 if len(rows) == 1 else 63) / 30)
    assert [newest(shop, row.topic).bytes for row in stats.topics[1:]] == [row.bytes for row in stats.topics[1:]]
    assert (newest(shop).HasField("broker"), newest(shop, TOPIC).HasField("broker")) == (True, False)
    assert newest(shop).broker.used_bytes == stats.store.used_bytes


def test_a_topic_that_is_created_again_has_a_history_of_its_own(shop: Stubs, clock: FakeClock) -> None:
    shop.send(b"a")
    clock.advance(STEP_MS)
    shop.admin.DeleteTopic(pb.DeleteTopicRequest(name=TOPIC), timeout=CALL_S)
    shop.create_topic(queues=1)
    assert len(history(shop, TOPIC).points) == 0
    clock.advance(STEP_MS)
    (point,) = history(shop, TOPIC).points
    assert (point.sent_per_s, point.bytes) == (0, 0)


def test_a_dead_letter_topic_has_no_numbers_of_its_own(shop: Stubs, clock: FakeClock) -> None:
    clock.advance(STEP_MS)
    answer = history(shop, f"%DLQ%{GROUP}")
    assert (len(answer.points), answer.left_out) == (0, False)


def served(folder: Path, clock: FakeClock, minutes: int, look: Callable[[Stubs], T]) -> T:
    """A broker runs for so many minutes; what is seen then."""
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        if not stubs.admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S).topics:
            stubs.create_topic(queues=1)
            stubs.create_group()
        for _ in range(2 * minutes):
            stubs.send(b"a")
            clock.advance(STEP_MS)
        return look(stubs)


def times(stubs: Stubs, topic: str = "") -> list[int]:
    return [point.time_ms for point in history(stubs, topic).points]


def test_the_history_goes_on_after_a_restart_with_a_gap_for_the_time_in_between(folder: Path) -> None:
    clock = FakeClock()
    before = served(folder, clock, 2, times)
    assert len(before) == 4
    clock.advance(10 * 60_000)
    began_ms = clock.now_ms()
    every, orders = served(folder, clock, 1, lambda stubs: (times(stubs), times(stubs, TOPIC)))
    assert every == orders == [*before, began_ms + STEP_MS, began_ms + 2 * STEP_MS]


def test_check_compact_and_a_start_leave_the_file_alone(folder: Path) -> None:
    clock = FakeClock()
    before = served(folder, clock, 2, times)
    kept = (folder / HISTORY_FILE).read_bytes()
    assert check_folder(folder) == []
    compact_folder(folder)
    assert (folder / HISTORY_FILE).read_bytes() == kept
    assert served(folder, clock, 0, times) == before


def test_beyond_the_most_topics_an_answer_says_that_something_is_left_out(
    shop: Stubs, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "TOPICS_MAX", 2)
    for name in ("a", "b"):
        shop.create_topic(name, queues=1)
    shop.send(b"a", b"b", b"c", topic=TOPIC)
    clock.advance(STEP_MS)
    kept, beyond = history(shop, "a"), history(shop, TOPIC)
    assert (len(kept.points), kept.left_out) == (1, False)
    assert (len(beyond.points), beyond.left_out) == (0, True)
    assert newest(shop).sent_per_s == pytest.approx(0.1)
    assert not history(shop).left_out


def test_a_key_gets_the_sums_over_what_it_may_see(folder: Path, tmp_path: Path) -> None:
    keys, clock = tmp_path / "keys.toml", FakeClock()
    keys.touch(0o600)
    keys.write_text(KEYS)
    with EmbeddedBroker(folder, clock=clock, sync="none", access_keys=keys) as broker:

        def client(name: str) -> popmq.Client:
            return popmq.Client(broker.endpoint, access_key=name, secret=f"{name}-secret-of-the-tests")

        with client("root") as root, client("reader") as reader:
            for topic in (TOPIC, "secret"):
                root.topics.create(topic, queues=1)
                root.send(topic, ["a"] * 30)
            for group in (GROUP, "audit"):
                root.groups.create(group)
                root.pop(TOPIC, group, max_messages=10)
            clock.advance(STEP_MS)
            (every,), (own,) = root.broker.history().points, reader.broker.history().points
            assert (every.sent_per_s, every.in_flight, every.backlog) == (2, 20, 60)
            assert (own.sent_per_s, own.in_flight, own.backlog, own.used_bytes) == (1, 10, 30, 0)
            assert reader.broker.history(TOPIC, GROUP).points[0].in_flight == 10
            assert reader.broker.history(TOPIC).points[0].in_flight == 10
            for topic, group in (("secret", ""), (TOPIC, "audit")):
                with pytest.raises(popmq.errors.Denied):
                    reader.broker.history(topic, group)
