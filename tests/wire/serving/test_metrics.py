"""The scrape port: it says what docs/metrics.md says, and its numbers are true."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.broker_process import ROOT, own_port
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import StartError
from tests.wire.parked import Parked
from tests.wire.producer import Producer
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, handles, refusal

PAGE = ROOT / "docs" / "metrics.md"
ROW = re.compile(r"^\| `((?:popmq|process)_\w+)` \| (\w+) \| ([\w, ]*) ?\|", re.MULTILINE)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraped:
    """One scrape of the real port."""

    def __init__(self, port: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=CALL_S) as answer:
            text = answer.read().decode()
        self.families = [family for family in text_string_to_metric_families(text) if "_created" not in family.name]
        self._samples: Samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one series; 0 for one that has not begun."""
        return self._samples.get((f"popmq_{name}", frozenset(labels.items())), 0.0)

    def values(self, label: str) -> Iterator[tuple[str, str]]:
        """(series, value of a label) wherever it has one."""
        for name, labels in self._samples:
            yield from ((name, value) for key, value in labels if key == label)

    def labels(self) -> Iterator[tuple[str, frozenset[str]]]:
        """(metric as documented, its labels) of every series."""
        for family in self.families:
            name = family.name + ("_total" if family.type == "counter" else "")
            for sample in family.samples:
                yield name, frozenset(sample.labels) - {"le"}


@pytest.fixture
def port() -> int:
    return own_port()


@pytest.fixture
def broker(folder: Path, clock: FakeClock, port: int) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(folder, clock=clock, sync="meta", metrics_port=port) as broker:
        yield broker
    assert check_folder(folder) == []


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """Name → (type, labels) of each metric on the page, but for those that only a gateway has."""
    rows = ROW.findall(PAGE.read_text().partition("## Gateways")[0])
    return {name: (kind, frozenset(labels.replace(",", " ").split())) for name, kind, labels in rows}


def exercise(shop: Stubs, clock: FakeClock) -> None:
    """Moves every metric."""
    shop.send(b"a", b"b", b"c")
    first, second, _ = handles(shop.pop(invisible_ms=1_000))
    shop.ack(first, first)
    shop.change(second, release=pb.Release(delay_ms=60_000))
    shop.create_group("reader")
    switch(shop, TOPIC, "reader")
    shop.broker.Pull(pb.PullRequest(topic=TOPIC, group="reader"), timeout=CALL_S)
    limited(shop)
    clock.advance(1_250)


def switch(shop: Stubs, topic: str, group: str = GROUP) -> None:
    """From here on the group pulls the topic."""
    request = pb.SetConsumeModeRequest(topic=topic, group=group, mode=pb.PULL)
    shop.admin.SetConsumeMode(request, timeout=CALL_S)


def left_behind(shop: Stubs, clock: FakeClock) -> None:
    """Group `gone` stops reading until its subscription is warned of."""
    shop.create_group("gone", subscription_expiry_ms=4 * 3_600_000)
    shop.broker.WaitAvailable(pb.WaitAvailableRequest(topic=TOPIC, group="gone"), timeout=CALL_S)
    for _ in range(7):
        clock.advance(1_800_000)


def limited(shop: Stubs) -> None:
    """Twice refused by a quota."""
    shop.create_topic("slow", quota=pb.Quota(send_messages_per_s=1, pop_messages_per_s=1))
    shop.send(b"x", topic="slow")
    refusal(shop.broker.Send, pb.SendRequest(topic="slow", messages=[pb.Message(body=b"y")] * 2))
    refusal(shop.broker.Send, pb.SendRequest(topic="slow", messages=[pb.Message(body=b"y")]))


@pytest.mark.slow
def test_calls_refused_by_a_limit_of_a_topic_or_group_are_counted_by_it(
    shop: Stubs, clock: FakeClock, port: int
) -> None:
    limited(shop)
    clock.advance(1_000)
    shop.send(b"z", topic="slow")
    shop.pop("slow", max_messages=1)
    refusal(shop.broker.Pop, pb.PopRequest(topic="slow", group=GROUP))
    switch(shop, "slow")
    refusal(shop.broker.Pull, pb.PullRequest(topic="slow", group=GROUP))
    shop.admin.UpdateGroup(pb.UpdateGroupRequest(group=pb.Group(name=GROUP, in_flight_max=1)), timeout=CALL_S)
    shop.send(b"a", b"b")
    shop.pop()
    refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP))
    scraped = Scraped(port)
    assert scraped("limited_total", code="RATE_LIMITED", group="", topic="slow") == 2
    assert scraped("limited_total", code="RATE_LIMITED", group=GROUP, topic="slow") == 2
    assert scraped("limited_total", code="IN_FLIGHT_LIMIT", group=GROUP, topic=TOPIC) == 1
    assert scraped("topic_bytes", topic="slow") > 0
    shop.admin.DeleteTopic(pb.DeleteTopicRequest(name="slow"), timeout=CALL_S)
    assert not [labels for _, labels in Scraped(port).values("topic") if labels == "slow"]


@pytest.mark.slow
def test_an_idle_subscription_is_in_the_metrics_before_and_after_it_expires(
    shop: Stubs, clock: FakeClock, port: int
) -> None:
    shop.send(b"a", b"b")
    left_behind(shop, clock)
    names = {"group": "gone", "topic": TOPIC}
    scraped = Scraped(port)
    assert scraped("events_total", event="subscription_expiring", **names) == 1
    assert scraped("event_messages_total", event="subscription_expiring", **names) == 2
    assert scraped("group_idle_seconds", **names) == 3.5 * 3600
    assert 0 < scraped("group_expires_seconds", **names) <= 3600
    for _ in range(4):
        clock.advance(1_800_000)
    scraped = Scraped(port)
    assert scraped("event_messages_total", event="subscription_expired", **names) == 2
    assert scraped("group_expires_seconds", **names) == 0
    stats = shop.admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S)
    assert [row.abandoned for row in stats.topics if row.topic == TOPIC] == [2]
    shop.admin.DeleteGroup(pb.DeleteGroupRequest(name="gone"), timeout=CALL_S)
    assert not [label for _, label in Scraped(port).values("group") if label == "gone"]


def test_a_group_that_reads_nothing_after_a_restart_is_idle_since_the_restart(
    folder: Path, clock: FakeClock, port: int
) -> None:
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as shop:
        shop.create_topic()
        shop.create_group()
        shop.send(b"a")
        shop.pop(invisible_ms=1_000)
    with EmbeddedBroker(folder, clock=clock, sync="none", metrics_port=port):
        clock.advance(1_000_000)
        names = {"group": GROUP, "topic": TOPIC}
        assert Scraped(port)("group_idle_seconds", **names) == 1_000


def test_a_member_that_sends_heartbeats_keeps_its_subscription_though_it_pops_nothing(
    shop: Stubs, clock: FakeClock
) -> None:
    shop.create_group("paused", subscription_expiry_ms=4 * 3_600_000)
    shop.broker.WaitAvailable(pb.WaitAvailableRequest(topic=TOPIC, group="paused"), timeout=CALL_S)
    for _ in range(24):
        clock.advance(1_800_000)
        beat = pb.HeartbeatRequest(group="paused", client_id="c", topics=[TOPIC])
        shop.broker.Heartbeat(beat, timeout=CALL_S)
    (row,) = shop.admin.GetStats(pb.GetStatsRequest(group="paused"), timeout=CALL_S).groups
    assert row.expires_ms == 0


def test_the_page_and_the_port_name_the_same_metrics(shop: Stubs, clock: FakeClock, port: int) -> None:
    exercise(shop, clock)
    left_behind(shop, clock)
    make_schedule(shop)
    shop.create_group("fair", fair_keys=pb.FairKeys(message_key=True))
    shop.pop(group="fair", max_messages=1)
    scraped = Scraped(port)
    types = {family.name + ("_total" if family.type == "counter" else ""): family.type for family in scraped.families}
    assert types == {name: kind for name, (kind, _) in documented().items()}
    # This broker has no access keys and no TLS: tests in tests/wire/access read their samples.
    others = "popmq_access_key_", "popmq_certificate_"
    sampled = {name: labels for name, (_, labels) in documented().items() if not name.startswith(others)}
    assert set(scraped.labels()) == set(sampled.items())


@pytest.mark.mechanism("S1.57", "S2.38")
def test_calls_requests_messages_and_bytes_are_counted_by_method_group_and_topic(
    shop: Stubs, clock: FakeClock, port: int
) -> None:
    exercise(shop, clock)
    stored = sum(pb.Message(message_id=body, body=body.encode()).ByteSize() for body in "abc")
    scraped = Scraped(port)
    both = {"group": GROUP, "topic": TOPIC}
    assert scraped("requests_total", method="Send", group="", topic=TOPIC) == 1
    assert scraped("messages_total", method="Send", group="", topic=TOPIC) == 3
    assert scraped("message_bytes_total", method="Send", group="", topic=TOPIC) == stored
    assert scraped("requests_total", method="Pop", **both) == 1
    assert scraped("messages_total", method="Pop", **both) == 3
    assert scraped("message_bytes_total", method="Pop", **both) == stored
    assert scraped("messages_total", method="Ack", **both) == 1
    assert scraped("messages_total", method="ChangeInvisibleTime", group=GROUP, topic="") == 1
    assert scraped("calls_total", method="Pop", code="OK") == 1
    assert scraped("call_seconds_count", method="Pop") == 1
    assert scraped("refusals_total", code="HANDLE_LAPSED") == 1, "the entry; its call was served"
    assert scraped("calls_total", method="Ack", code="OK") == 1


def test_redriven_dead_letters_are_counted_by_their_origin_and_those_that_stay_as_refusals(
    shop: Stubs, port: int
) -> None:
    shop.send(b"a", b"b")
    for handle in handles(shop.pop()):
        shop.change(handle, reject=pb.Reject())
    redrive = pb.RedriveDeadLettersRequest(group=GROUP, offsets=[0, 1, 7])
    shop.admin.RedriveDeadLetters(redrive, timeout=CALL_S)
    scraped = Scraped(port)
    assert scraped("messages_total", method="RedriveDeadLetters", group=GROUP, topic=TOPIC) == 2
    assert scraped("refusals_total", code="MESSAGE_NOT_FOUND") == 1
    assert scraped("group_dead", group=GROUP) == 0


def test_refused_and_repeated_sends_are_not_counted_as_messages(shop: Stubs, port: int) -> None:
    request = pb.SendRequest(
        topic=TOPIC, messages=[pb.Message(body=b"good"), pb.Message()], producer_id="p", request_number=1
    )
    (stored, _) = shop.broker.Send(request, timeout=CALL_S).results
    shop.broker.Send(request, timeout=CALL_S)
    scraped = Scraped(port)
    assert scraped("requests_total", method="Send", group="", topic=TOPIC) == 2
    assert scraped("messages_total", method="Send", group="", topic=TOPIC) == 1
    size = pb.Message(body=b"good", message_id=stored.message_id).ByteSize()
    assert scraped("message_bytes_total", method="Send", group="", topic=TOPIC) == size
    assert scraped("refusals_total", code="INVALID_FIELD") == 2


@pytest.mark.slow
def test_refusals_are_counted_by_reason_and_made_up_names_are_no_labels(shop: Stubs, port: int) -> None:
    for number in range(3):
        refusal(shop.broker.Pop, pb.PopRequest(topic=f"made-up-{number}", group=GROUP))
    refusal(shop.broker.Heartbeat, pb.HeartbeatRequest(group="made-up", client_id="c"))
    scraped = Scraped(port)
    assert scraped("refusals_total", code="TOPIC_NOT_FOUND") == 3
    assert scraped("calls_total", method="Pop", code="TOPIC_NOT_FOUND") == 3
    assert scraped("calls_total", method="Heartbeat", code="GROUP_NOT_FOUND") == 1
    values = {value for family in scraped.families for sample in family.samples for value in sample.labels.values()}
    assert not {value for value in values if value.startswith("made-up")}


@pytest.mark.slow
def test_series_of_deleted_topics_and_groups_go_with_them(shop: Stubs, clock: FakeClock, port: int) -> None:
    shop.create_group("audit")
    shop.send(b"a", b"b")
    shop.ack(*handles(shop.pop()))
    shop.pop(group="audit")
    shop.admin.DeleteGroup(pb.DeleteGroupRequest(name=GROUP), timeout=CALL_S)
    scraped = Scraped(port)
    assert not [labels for _, labels in scraped.values("group") if labels == GROUP]
    assert scraped("messages_total", method="Pop", group="audit", topic=TOPIC) == 2
    shop.admin.DeleteTopic(pb.DeleteTopicRequest(name=TOPIC), timeout=CALL_S)
    assert not [labels for _, labels in Scraped(port).values("topic") if labels == TOPIC]


@pytest.mark.mechanism("S0.43")
@pytest.mark.slow
def test_groups_are_shown_with_the_numbers_of_getstats(shop: Stubs, clock: FakeClock, port: int) -> None:
    shop.create_topic("other", queues=1)
    shop.send(*(str(number).encode() for number in range(10)))
    shop.send(b"x", b"y", topic="other")
    one, two, three, *_ = handles(shop.pop(max_messages=6, invisible_ms=60_000))
    shop.ack(one)
    shop.change(two, release=pb.Release(delay_ms=0))
    shop.change(three, release=pb.Release(delay_ms=600_000))
    shop.change(handles(shop.pop("other", max_messages=1))[0], reject=pb.Reject())
    clock.advance(5_500)
    scraped = Scraped(port)
    for topic in (TOPIC, "other"):
        stats = shop.stats(topic)
        both = {"group": GROUP, "topic": topic}
        for name in ("ready", "in_flight", "retry", "backoff"):
            assert scraped(f"group_{name}", **both) == getattr(stats, name), name
        assert scraped("group_acked_total", **both) == stats.acked
        assert scraped("group_oldest_age_seconds", **both) == stats.oldest_age_ms / 1000 == 5.5
        assert scraped("group_dead", group=GROUP) == stats.dead == 1
    assert [scraped(f"group_{name}", group=GROUP, topic=TOPIC) for name in ("ready", "in_flight", "retry", "backoff")]
    assert shop.stats().in_flight == 3


@pytest.mark.slow
def test_lateness_is_measured_from_the_leases_own_time(shop: Stubs, clock: FakeClock, port: int) -> None:
    shop.send(b"a")
    shop.pop(invisible_ms=1_000)
    clock.advance(1_250)
    scraped = Scraped(port)
    assert scraped("lease_lateness_seconds_count") == 1
    assert scraped("lease_lateness_seconds_sum") == 0.25


@pytest.mark.slow
def test_commits_and_fsyncs_are_counted(shop: Stubs, port: int) -> None:
    before = Scraped(port)
    for number in range(5):
        shop.send(str(number).encode())
    after = Scraped(port)
    for name in ("fsyncs_total", "commit_commands_count", "commit_seconds_count"):
        assert after(name) - before(name) == 5, name
    assert after("commit_commands_sum") - before("commit_commands_sum") == 5
    assert after("commit_seconds_sum") > before("commit_seconds_sum")


def test_a_broker_that_does_not_sync_counts_no_fsyncs(folder: Path, port: int) -> None:
    with (
        EmbeddedBroker(folder, clock=FakeClock(), sync="none", metrics_port=port) as broker,
        Stubs(broker.endpoint) as stubs,
    ):
        stubs.create_topic()
        assert Scraped(port)("fsyncs_total") == 0
        assert Scraped(port)("commit_commands_count") == 1
        store = stubs.admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S).store
        assert (store.commits, store.fsyncs) == (1, 0)


@pytest.mark.slow
def test_parked_calls_are_gauged_at_the_time_of_the_scrape(shop: Stubs, parked: Parked, port: int) -> None:
    calls = [shop.pop_later(max_messages=1), shop.pop_later(max_messages=1, queues=[0])]
    waiting = pb.WaitAvailableRequest(topic=TOPIC, group=GROUP, min_ready=1, wait_ms=60_000)
    calls.append(shop.broker.WaitAvailable.future(waiting, timeout=CALL_S))
    parked.wait_for(3)
    assert Scraped(port)("waiters") == 3
    shop.send(b"a", b"b", b"c")
    for call in calls:
        call.result()
    assert Scraped(port)("waiters") == 0


@pytest.mark.slow
def test_the_space_of_the_store_is_shown(shop: Stubs, port: int) -> None:
    scraped = Scraped(port)
    store = shop.admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S).store
    assert scraped("store_used_bytes") == store.used_bytes > 0
    assert scraped("store_limit_bytes") == store.map_bytes == 1 << 30
    assert scraped("store_disk_free_bytes") > 0


def make_schedule(stubs: Stubs) -> pb.Schedule:
    schedule = pb.Schedule(name="tick", cron="0 * * * *", topic=TOPIC, message=pb.Message(body=b"go"))
    made: pb.Schedule = stubs.admin.CreateSchedule(pb.CreateScheduleRequest(schedule=schedule), timeout=CALL_S).schedule
    return made


@pytest.mark.slow
def test_schedules_and_their_next_occurrence_are_gauged(shop: Stubs, clock: FakeClock, port: int) -> None:
    scraped = Scraped(port)
    assert (scraped("schedules"), scraped("schedule_late_seconds")) == (0, 0)
    assert not any(name == "popmq_schedule_next_seconds" for name, _ in scraped.labels()), "there is no next one"
    made = make_schedule(shop)
    scraped = Scraped(port)
    assert (scraped("schedules"), scraped("schedule_late_seconds")) == (1, 0)
    assert scraped("schedule_next_seconds") == (made.next_ms - clock.now_ms()) / 1000


def test_a_step_of_the_wall_clock_is_gauged(shop: Stubs, clock: FakeClock, port: int) -> None:
    clock.step_wall(8 * 3_600_000)
    assert Scraped(port)("clock_behind_seconds") == 8 * 3_600


def test_a_metrics_port_in_use_is_a_start_error_with_the_cure(
    broker: EmbeddedBroker, tmp_path: Path, port: int
) -> None:
    second = EmbeddedBroker(tmp_path / "second", sync="none", metrics_port=port)
    with pytest.raises(StartError, match=f"metrics port {port} .*--metrics-port"):
        second.start()
    with EmbeddedBroker(tmp_path / "second", sync="none"):
        pass


@pytest.mark.slow
def test_metrics_count_delayed_and_half_messages_and_their_checks(shop: Stubs, clock: FakeClock, port: int) -> None:
    shop.create_topic("later", type=pb.TRANSACTION)
    asked = [{"delay_ms": 1_000}, {"delay_ms": 500}, {"transaction": True}, {"transaction": True}]
    messages = [pb.Message(body=b"x", **fields) for fields in asked]  # type: ignore[arg-type]
    sent = shop.broker.Send(pb.SendRequest(topic="later", messages=messages), timeout=CALL_S).results
    shop.broker.Recall(pb.RecallRequest(topic="later", recall_handle=sent[0].recall_handle), timeout=CALL_S)
    ends = [pb.TransactionEnd(transaction_id=sent[2].transaction_id, resolution=pb.ROLLBACK), pb.TransactionEnd()]
    shop.broker.EndTransaction(pb.EndTransactionRequest(ends=ends), timeout=CALL_S)
    scraped = Scraped(port)
    assert [scraped(f"topic_{name}", topic="later") for name in ("delayed", "half", "bytes")] == [1, 1, 0]
    assert scraped("messages_total", method="Recall", group="", topic="later") == 1
    assert scraped("messages_total", method="EndTransaction", group="", topic="") == 1
    assert scraped("refusals_total", code="INVALID_FIELD") == 1
    with Producer(shop, "later") as producer:
        assert Scraped(port)("producers") == 1
        for number in range(1, 16):
            clock.advance(30_000)
            assert producer.asked().check == number
            while Scraped(port)("transaction_checks_total") < number:
                pass
        clock.advance(30_000)
    scraped = Scraped(port)
    assert (scraped("transactions_given_up_total"), scraped("topic_half", topic="later")) == (1, 0)
    assert scraped("delayed_lateness_seconds_count") == 1
    assert scraped("delayed_lateness_seconds_sum") == 29.5, "due after half a second, seen after thirty"
