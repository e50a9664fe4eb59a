"""GetStats, ListLeases: the numbers are those of a small model that sees every answer."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, handles

MAX_ATTEMPTS = 3
OTHER = "refunds"


@dataclass
class Message:
    """Where one message of one topic is for the group, and when that ends by itself."""

    stored_ms: int
    where: str = "ready"
    until_ms: int = 0
    attempt: int = 0
    handle: str = ""


@dataclass
class Model:
    """One group in two topics. It sees only calls and answers, and never asks the broker."""

    clock: FakeClock
    messages: dict[str, dict[str, Message]] = field(default_factory=lambda: {TOPIC: {}, OTHER: {}})

    def pass_time(self) -> None:
        for message in self.all():
            if message.until_ms and message.until_ms <= self.clock.now_ms():
                dead = message.where == "in_flight" and message.attempt >= MAX_ATTEMPTS
                message.where, message.until_ms = "dead" if dead else "retry", 0

    def all(self) -> list[Message]:
        return [message for topic in self.messages.values() for message in topic.values()]

    def expected(self, topic: str) -> dict[str, int]:
        """The numbers of GroupStats. Dead letters are those of all topics."""
        counted = Counter(message.where for message in self.messages[topic].values())
        dead = sum(message.where == "dead" for message in self.all())
        return {where: counted[where] for where in ("ready", "in_flight", "retry", "backoff", "acked")} | {"dead": dead}

    def oldest_age_ms(self, topic: str) -> int:
        unfinished = [one.stored_ms for one in self.messages[topic].values() if one.where not in ("acked", "dead")]
        return self.clock.now_ms() - min(unfinished, default=self.clock.now_ms())


class History:
    """A random but repeatable life of a broker, and the model that sees it."""

    def __init__(self, seed: int, stubs: Stubs, clock: FakeClock) -> None:
        self.pick = random.Random(seed)
        self.stubs = stubs
        self.clock = clock
        self.model = Model(clock)
        self._sent = 0
        for topic in (TOPIC, OTHER):
            stubs.create_topic(topic, queues=3)
        stubs.create_group(max_attempts=MAX_ATTEMPTS, backoff=pb.Backoff(delays_ms=[4_000]))
        for topic in (TOPIC, OTHER):
            stubs.pop(topic)

    def step(self) -> None:
        self.pick.choices([self.send, self.pop, self.end, self.wait], weights=[3, 4, 6, 1])[0]()

    def topic(self) -> str:
        return self.pick.choice([TOPIC, TOPIC, OTHER])

    def send(self) -> None:
        topic, count = self.topic(), self.pick.randint(1, 5)
        names = [f"m{self._sent + number}" for number in range(count)]
        self._sent += count
        self.stubs.send(*(name.encode() for name in names), topic=topic)
        self.model.messages[topic] |= {name: Message(self.clock.now_ms()) for name in names}

    def pop(self) -> None:
        topic, invisible_ms = self.topic(), self.pick.choice([2_000, 5_000, 60_000])
        answer = self.stubs.pop(topic, max_messages=self.pick.randint(1, 6), invisible_ms=invisible_ms)
        for delivery in answer.deliveries:
            message = self.model.messages[topic][delivery.message.message_id]
            assert message.where in ("ready", "retry"), f"delivered while it was {message.where}"
            message.attempt += 1
            assert delivery.attempt == message.attempt
            assert delivery.stored_ms == message.stored_ms
            message.where, message.until_ms = "in_flight", answer.invisible_until_ms
            message.handle = delivery.handle

    def end(self) -> None:
        """Acks, extends, releases or rejects one delivery."""
        leased = [message for message in self.model.all() if message.where == "in_flight"]
        if not leased:
            return
        message, kind = self.pick.choice(leased), self.pick.choice(["ack", "ack", "extend", "release", "reject"])
        if kind == "ack":
            assert self.stubs.ack(message.handle) == [""]
            message.where, message.until_ms = "acked", 0
        elif kind == "extend":
            invisible_ms = self.pick.choice([1_000, 30_000])
            message.until_ms = self.stubs.change(message.handle, extend=pb.Extend(invisible_ms=invisible_ms)).visible_ms
            assert message.until_ms == self.clock.now_ms() + invisible_ms
        elif kind == "reject":
            assert self.stubs.change(message.handle, reject=pb.Reject()).dead_lettered
            message.where, message.until_ms = "dead", 0
        else:
            self.release(message)

    def release(self, message: Message) -> None:
        uncounted, delay_ms = self.pick.random() < 0.3, self.pick.choice([None, 0, 7_000])
        change = pb.Release(uncounted=uncounted)
        if delay_ms is not None:
            change.delay_ms = delay_ms
        result = self.stubs.change(message.handle, release=change)
        dead = message.attempt >= MAX_ATTEMPTS and not uncounted
        assert result.dead_lettered is dead
        message.attempt -= uncounted
        delay_ms = 4_000 if delay_ms is None else delay_ms
        message.where = "dead" if dead else "backoff" if delay_ms else "retry"
        message.until_ms = self.clock.now_ms() + delay_ms if message.where == "backoff" else 0

    def wait(self) -> None:
        self.clock.advance(self.pick.choice([1, 1_000, 5_000, 20_000]))
        self.model.pass_time()


@pytest.mark.mechanism("D.70")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_numbers_are_those_of_a_model_that_sees_every_answer(stubs: Stubs, clock: FakeClock, seed: int) -> None:
    history = History(seed, stubs, clock)
    for _ in range(150):
        history.step()
        for topic in (TOPIC, OTHER):
            stats, expected = stubs.stats(topic), history.model.expected(topic)
            assert {name: getattr(stats, name) for name in expected} == expected
    kinds = {message.where for message in history.model.all()}
    assert kinds >= {"acked", "dead", "in_flight"}, "the history was not dull"


@pytest.mark.slow
def test_the_oldest_age_is_that_of_the_oldest_unfinished_message(stubs: Stubs, clock: FakeClock) -> None:
    history = History(1, stubs, clock)
    for _ in range(150):
        history.step()
        for topic in (TOPIC, OTHER):
            assert stubs.stats(topic).oldest_age_ms == history.model.oldest_age_ms(topic)


def test_numbers_of_topics_and_groups_are_filtered_by_name(shop: Stubs) -> None:
    shop.create_topic(OTHER, queues=2)
    shop.create_group("audit")
    for topic in (TOPIC, OTHER):
        shop.send(b"a", topic=topic)
        for group in (GROUP, "audit"):
            shop.pop(topic, group)

    def shown(topic: str = "", group: str = "") -> tuple[list[str], list[tuple[str, str]]]:
        answer = shop.admin.GetStats(pb.GetStatsRequest(topic=topic, group=group), timeout=CALL_S)
        topics = [row.topic for row in answer.topics]
        return topics, [(row.group, row.topic) for row in answer.groups]

    everything = ["%DLQ%audit", f"%DLQ%{GROUP}", TOPIC, OTHER]
    pairs = [(group, topic) for group in ("audit", GROUP) for topic in (TOPIC, OTHER)]
    assert shown() == (everything, pairs)
    assert shown(topic=OTHER) == ([OTHER], [("audit", OTHER), (GROUP, OTHER)])
    assert shown(group=GROUP) == (everything, [(GROUP, TOPIC), (GROUP, OTHER)])
    assert shown(topic=TOPIC, group=GROUP) == ([TOPIC], [(GROUP, TOPIC)])


def test_topics_show_what_they_hold_by_queue(stubs: Stubs) -> None:
    stubs.create_topic(queues=3)
    for number in range(4):
        stubs.send(str(number).encode())
    (topic,) = stubs.admin.GetStats(pb.GetStatsRequest(topic=TOPIC), timeout=CALL_S).topics
    assert topic.messages == 4
    assert sorted(queue.max_offset for queue in topic.queues) == [1, 1, 2]
    assert [(queue.queue, queue.min_offset) for queue in topic.queues] == [(0, 0), (1, 0), (2, 0)]


def test_rates_are_averages_over_the_last_minute_by_topic(shop: Stubs, clock: FakeClock) -> None:
    shop.create_topic(OTHER, queues=1)
    shop.pop(OTHER)
    clock.advance(60_000)
    shop.send(*(str(number).encode() for number in range(30)))
    shop.ack(*handles(shop.pop(max_messages=15)))
    clock.advance(30_000)
    shop.send(*(str(number).encode() for number in range(30)))
    (sent,) = shop.admin.GetStats(pb.GetStatsRequest(topic=TOPIC), timeout=CALL_S).topics
    stats = shop.stats()
    assert (sent.sent_per_s, stats.popped_per_s, stats.acked_per_s) == (1.0, 0.25, 0.25)
    other = shop.stats(OTHER)
    assert (other.popped_per_s, other.acked_per_s) == (0, 0)
    clock.advance(30_000)
    (sent,) = shop.admin.GetStats(pb.GetStatsRequest(topic=TOPIC), timeout=CALL_S).topics
    assert (sent.sent_per_s, shop.stats().popped_per_s) == (0.5, 0)


def test_rates_of_the_first_minute_are_averages_since_the_start(shop: Stubs, clock: FakeClock) -> None:
    """Divided by a minute, they would say for a minute after each restart that the load is gone."""
    shop.send(*(str(number).encode() for number in range(30)))
    clock.advance(10_000)
    (sent,) = shop.admin.GetStats(pb.GetStatsRequest(topic=TOPIC), timeout=CALL_S).topics
    assert sent.sent_per_s == 3.0


def test_a_topic_created_again_has_no_rates_of_the_old_one(shop: Stubs) -> None:
    shop.send(*(str(number).encode() for number in range(30)))
    shop.ack(*handles(shop.pop()))
    shop.admin.DeleteTopic(pb.DeleteTopicRequest(name=TOPIC), timeout=CALL_S)
    shop.create_topic(queues=1)
    shop.pop()
    (topic,) = shop.admin.GetStats(pb.GetStatsRequest(topic=TOPIC), timeout=CALL_S).topics
    stats = shop.stats()
    assert (topic.sent_per_s, stats.popped_per_s, stats.acked_per_s, stats.acked) == (0, 0, 0, 0)


def test_commits_are_counted_and_reads_make_none(shop: Stubs) -> None:
    def commits() -> int:
        store: pb.StoreStats = shop.admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S).store
        return store.commits

    before = commits()
    shop.send(b"a")
    assert commits() == before + 1
    shop.pop(group=GROUP)
    shop.admin.ListLeases(pb.ListLeasesRequest(), timeout=CALL_S)
    shop.admin.Browse(pb.BrowseRequest(topic=TOPIC), timeout=CALL_S)
    assert commits() == before + 2


# ── ListLeases ───────────────────────────────────────────────────────────────────────────────────────────────────────


def leases(stubs: Stubs, **fields: object) -> pb.ListLeasesResponse:
    answer: pb.ListLeasesResponse = stubs.admin.ListLeases(pb.ListLeasesRequest(**fields), timeout=CALL_S)  # type: ignore[arg-type]
    return answer


def test_a_listed_lease_has_its_messages_its_client_and_its_deadline(shop: Stubs, clock: FakeClock) -> None:
    shop.send(b"a", b"b", b"c")
    first, second, third = handles(shop.pop(client_id="worker-1", invisible_ms=30_000))
    popped_ms = clock.now_ms()
    clock.advance(1_000)
    shop.ack(first)
    shop.change(second, extend=pb.Extend(invisible_ms=5_000))
    shop.change(third, release=pb.Release(delay_ms=60_000))
    answer = leases(shop)
    found = [(lease.kind, lease.undone, lease.due_ms - clock.now_ms(), lease.client_id) for lease in answer.leases]
    assert found == [("normal", 1, 5_000, "worker-1"), ("backoff", 1, 60_000, "worker-1")]
    assert (answer.leases[0].popped_ms, answer.leases[0].messages, answer.total) == (popped_ms, 3, 2)


def test_leases_come_soonest_first_those_of_owners_included(shop: Stubs, clock: FakeClock) -> None:
    shop.send(*(str(number).encode() for number in range(4)))
    shop.pop(max_messages=1, invisible_ms=50_000)
    token = pb.Token(owner="query", generation=shop.attach("query", lease_ms=20_000).generation, epoch=1)
    shop.pop(max_messages=1, invisible_ms=20_000, token=token)
    shop.pop(max_messages=1, invisible_ms=10_000)
    answer = leases(shop)
    assert [(lease.owner, lease.due_ms - clock.now_ms()) for lease in answer.leases] == [
        ("", 10_000),
        ("query", 20_000),
        ("", 50_000),
    ]
    assert [lease.due_ms for lease in leases(shop, max_leases=2).leases] == [
        lease.due_ms for lease in answer.leases[:2]
    ]
    assert leases(shop, max_leases=2).total == 3


def test_zeros_of_an_unread_topic_are_one_row_also_in_pages_and_of_a_retry_topic(shop: Stubs) -> None:
    def page(token: str = "", topic: str = TOPIC) -> pb.GetStatsResponse:
        asked = pb.GetStatsRequest(topic=topic, group=GROUP, page_size=1, page_token=token)
        answer: pb.GetStatsResponse = shop.admin.GetStats(asked, timeout=CALL_S)
        return answer

    first = page()
    second = page(first.next_page_token)
    assert (len(first.topics), len(first.groups)) == (1, 0)
    assert list(second.groups) == [shop.stats()]
    third = page(second.next_page_token) if second.next_page_token else pb.GetStatsResponse()
    assert not third.groups
    assert not third.next_page_token
    assert shop.counted() == shop.counted(f"%RETRY%{GROUP}+{TOPIC}") == {"topic": TOPIC, "group": GROUP}
    shop.create_group("audit")
    assert [row.group for row in shop.admin.GetStats(pb.GetStatsRequest(topic=TOPIC), timeout=CALL_S).groups] == []


@pytest.mark.parametrize("size", [1, 2, 5, 7, 100])
@pytest.mark.parametrize("group", ["", "audit"])
def test_the_pages_of_all_numbers_join_to_the_whole_topics_first(shop: Stubs, size: int, group: str) -> None:
    shop.create_group("audit")
    for number in range(3):
        shop.create_topic(f"t{number}", queues=1)
        for each in (GROUP, "audit"):
            shop.pop(f"t{number}", each)
    whole = shop.admin.GetStats(pb.GetStatsRequest(group=group), timeout=CALL_S)
    assert not whole.next_page_token
    joined, token, most = pb.GetStatsResponse(), "", len(whole.topics) + len(whole.groups) + 2
    for _ in range(most):
        asked = pb.GetStatsRequest(group=group, page_size=size, page_token=token)
        page = shop.admin.GetStats(asked, timeout=CALL_S)
        assert len(page.topics) + len(page.groups) <= size
        assert page.store.map_bytes == whole.store.map_bytes
        assert not (page.topics and joined.groups), "no topic behind a group"
        joined.topics.extend(page.topics)
        joined.groups.extend(page.groups)
        if not (token := page.next_page_token):
            break
    assert not token
    assert list(joined.topics) == list(whole.topics)
    assert sorted(map(str, joined.groups)) == sorted(map(str, whole.groups))


def test_leases_are_filtered_by_group_and_topic(shop: Stubs) -> None:
    shop.create_group("audit")
    shop.create_topic(OTHER, queues=1)
    for topic in (TOPIC, OTHER):
        shop.send(b"a", topic=topic)
        for group in (GROUP, "audit"):
            shop.pop(topic, group)
    assert leases(shop).total == 4
    assert [(lease.group, lease.topic) for lease in leases(shop, group="audit", topic=OTHER).leases] == [
        ("audit", OTHER)
    ]
    assert leases(shop, group="audit").total == leases(shop, topic=TOPIC).total == 2


def test_messages_of_a_lapsed_owner_are_not_listed_as_leased(shop: Stubs, clock: FakeClock) -> None:
    shop.send(b"a", b"b")
    token = pb.Token(owner="query", generation=shop.attach("query").generation, epoch=1)
    shop.pop(token=token)
    clock.advance(60_000)
    assert shop.stats().retry == 2
    assert leases(shop) == pb.ListLeasesResponse()
