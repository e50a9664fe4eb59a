"""GetStats and ListLeases: which rows there are, their rates, and their pages."""

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, handles

OTHER = "refunds"


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


@pytest.mark.embedded("commits")
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


@pytest.mark.embedded("retries of groups that pop in one order")
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
