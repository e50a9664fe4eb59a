"""Topics and groups: made, changed, shown, deleted; and Browse, which looks without effect."""

from pathlib import Path
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.values.limits import DELAYS_MS_DEFAULT
from popmq_server.values.message import TIME_MS_MAX
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, dump, handles, refusal

RETRY = f"%RETRY%{GROUP}+{TOPIC}"
HOUR_MS = 3_600_000


def create_topic(stubs: Stubs, **settings: Any) -> pb.CreateTopicResponse:
    answer: pb.CreateTopicResponse = stubs.admin.CreateTopic(
        pb.CreateTopicRequest(topic=pb.Topic(**settings)), timeout=CALL_S
    )
    return answer


def create_group(stubs: Stubs, **settings: Any) -> pb.CreateGroupResponse:
    answer: pb.CreateGroupResponse = stubs.admin.CreateGroup(
        pb.CreateGroupRequest(group=pb.Group(**settings)), timeout=CALL_S
    )
    return answer


def update_topic(stubs: Stubs, **settings: Any) -> pb.Topic:
    answer = stubs.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(**settings)), timeout=CALL_S)
    assert isinstance(answer.topic, pb.Topic)
    return answer.topic


def update_group(stubs: Stubs, **settings: Any) -> pb.Group:
    answer = stubs.admin.UpdateGroup(pb.UpdateGroupRequest(group=pb.Group(**settings)), timeout=CALL_S)
    assert isinstance(answer.group, pb.Group)
    return answer.group


def get_group(stubs: Stubs, name: str = GROUP) -> pb.GetGroupResponse:
    answer: pb.GetGroupResponse = stubs.admin.GetGroup(pb.GetGroupRequest(name=name), timeout=CALL_S)
    return answer


def topic_names(stubs: Stubs, **fields: Any) -> list[str]:
    answer = stubs.admin.ListTopics(pb.ListTopicsRequest(**fields), timeout=CALL_S)
    return [topic.name for topic in answer.topics]


def browse(stubs: Stubs, topic: str = TOPIC, **fields: Any) -> pb.BrowseResponse:
    answer: pb.BrowseResponse = stubs.admin.Browse(pb.BrowseRequest(topic=topic, **fields), timeout=CALL_S)
    return answer


def browsed(answer: pb.BrowseResponse) -> list[bytes]:
    return [delivery.message.body for delivery in answer.deliveries]


# ── topics ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_is_made_with_the_defaults_of_the_contract(stubs: Stubs, clock: FakeClock) -> None:
    made = create_topic(stubs, name="t" * 127)
    assert made.topic == pb.Topic(
        name="t" * 127,
        type=pb.NORMAL,
        queues=8,
        retention=pb.Retention(keep_ms=72 * HOUR_MS),
        created_ms=clock.now_ms(),
        permission=pb.READ_WRITE,
    )
    assert not made.existed


@pytest.mark.parametrize("keep_ms", [60_000, 10 * 365 * 24 * HOUR_MS])
def test_a_topic_is_made_with_the_settings_that_were_asked_for(stubs: Stubs, keep_ms: int) -> None:
    retention = pb.Retention(by_age=True, keep_ms=keep_ms)
    made = create_topic(stubs, name=TOPIC, type=pb.NORMAL, queues=1024, retention=retention).topic
    shown = stubs.admin.GetTopic(pb.GetTopicRequest(name=TOPIC), timeout=CALL_S)
    assert shown.topic == made
    assert (made.queues, made.retention) == (1024, retention)
    assert [queue.queue for queue in shown.queues] == list(range(1024))


@pytest.mark.slow
def test_creating_what_exists_with_the_same_settings_succeeds(stubs: Stubs, clock: FakeClock) -> None:
    made = create_topic(stubs, name=TOPIC, queues=2).topic
    clock.advance(1_000)
    again = create_topic(stubs, name=TOPIC, queues=2, retention=pb.Retention(keep_ms=72 * HOUR_MS), created_ms=5)
    assert (again.topic, again.existed) == (made, True)
    refused = refusal(stubs.admin.CreateTopic, pb.CreateTopicRequest(topic=pb.Topic(name=TOPIC)))
    assert refused.code == "ALREADY_EXISTS"


@pytest.mark.slow
def test_an_update_changes_what_it_names_and_survives_a_restart(folder: Path, clock: FakeClock) -> None:
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        made = create_topic(stubs, name=TOPIC, queues=2).topic
        assert update_topic(stubs, name=TOPIC) == made, "what is not named stays"
        wider = update_topic(stubs, name=TOPIC, queues=4)
        assert (wider.queues, wider.retention) == (4, made.retention)
        kept = update_topic(stubs, name=TOPIC, retention=pb.Retention(by_age=True, keep_ms=60_000))
        assert (kept.queues, kept.retention) == (4, pb.Retention(by_age=True, keep_ms=60_000))
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        assert stubs.admin.GetTopic(pb.GetTopicRequest(name=TOPIC), timeout=CALL_S).topic == kept


@pytest.mark.slow
def test_topics_are_listed_by_name_and_dead_letter_topics_when_asked(stubs: Stubs) -> None:
    for name in ("b", "a.c", "a"):
        create_topic(stubs, name=name)
    create_group(stubs, name=GROUP)
    assert topic_names(stubs) == ["a", "a.c", "b"]
    assert topic_names(stubs, dead_letter_topics=True) == [f"%DLQ%{GROUP}", "a", "a.c", "b"]


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("D.60", "D.52")
def test_a_group_is_made_with_the_defaults_of_the_contract(stubs: Stubs, clock: FakeClock) -> None:
    made = create_group(stubs, name="g" * 120)
    group = made.group
    assert (group.max_attempts, group.invisible_ms, group.share_number) == (17, 60_000, 0)
    assert (group.exclusive_owner, group.fifo, group.created_ms) == (False, False, clock.now_ms())
    assert group.start == pb.StartPosition(**{"from": pb.EARLIEST})
    assert group.backoff.delays_ms == list(DELAYS_MS_DEFAULT)
    assert not made.existed


FULL: dict[str, Any] = {
    "name": GROUP,
    "max_attempts": 1_000,
    "backoff": pb.Backoff(delays_ms=[0, 43_200_000] * 32),
    "invisible_ms": 43_200_000,
    "share_number": 3,
    "start": pb.StartPosition(**{"from": pb.TIMESTAMP, "timestamp_ms": TIME_MS_MAX}),
    "exclusive_owner": True,
    "fifo": True,
    "in_flight_max": 500,
    "stop_on_failure": True,
    "consume_enable": False,
    "subscription_expiry_ms": 0,
    "snoozes_max": 7,
}


@pytest.mark.slow
def test_a_group_is_made_with_the_settings_that_were_asked_for(stubs: Stubs, clock: FakeClock) -> None:
    made = create_group(stubs, **FULL).group
    assert made == pb.Group(**FULL, created_ms=clock.now_ms())
    clock.advance(1_000)
    again = create_group(stubs, **FULL)
    assert (again.group, again.existed) == (made, True)
    assert get_group(stubs).group == made
    refused = refusal(stubs.admin.CreateGroup, pb.CreateGroupRequest(group=pb.Group(name=GROUP)))
    assert refused.code == "ALREADY_EXISTS"


def test_an_update_of_a_group_replaces_its_settings_and_survives_a_restart(folder: Path, clock: FakeClock) -> None:
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        created_ms = create_group(stubs, name=GROUP).group.created_ms
        clock.advance(1_000)
        changed = update_group(stubs, **FULL)
        assert changed == pb.Group(**FULL, created_ms=created_ms)
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        assert get_group(stubs).group == changed
        replaced = update_group(stubs, name=GROUP)
        assert (replaced.max_attempts, replaced.exclusive_owner) == (17, False), "what is unset has its default"


@pytest.mark.capability("subscription_expiry")
@pytest.mark.slow
@pytest.mark.parametrize(("asked", "made"), [(None, 90 * 24 * HOUR_MS), (0, 0), (HOUR_MS, HOUR_MS)])
def test_subscriptions_expire_by_default_and_zero_is_never(stubs: Stubs, asked: int | None, made: int) -> None:
    assert stubs.create_group(subscription_expiry_ms=asked).subscription_expiry_ms == made
    wrong = pb.Group(name=GROUP, subscription_expiry_ms=HOUR_MS - 1)
    assert refusal(stubs.admin.UpdateGroup, pb.UpdateGroupRequest(group=wrong)).code == "INVALID_FIELD"


@pytest.mark.promise("statistics")
@pytest.mark.slow
def test_groups_are_listed_by_name_and_shown_with_their_numbers(shop: Stubs) -> None:
    create_group(shop, name="a")
    answer = shop.admin.ListGroups(pb.ListGroupsRequest(), timeout=CALL_S)
    assert [group.name for group in answer.groups] == ["a", GROUP]
    assert list(get_group(shop).stats) == [], "it has named no topic yet"
    shop.send(b"a")
    shop.pop()
    (stats,) = get_group(shop).stats
    assert stats == shop.stats()


@pytest.mark.promise("statistics")
@pytest.mark.slow
def test_a_dead_letter_topic_may_be_emptied_by_deleting_it(shop: Stubs) -> None:
    shop.send(b"a", b"b")
    first, second = handles(shop.pop())
    shop.change(first, reject=pb.Reject())
    shop.admin.DeleteTopic(pb.DeleteTopicRequest(name=f"%DLQ%{GROUP}"), timeout=CALL_S)
    assert shop.stats().dead == 0
    shop.change(second, reject=pb.Reject())
    assert shop.stats().dead == 1
    assert browsed(browse(shop, f"%DLQ%{GROUP}")) == [b"b"]


@pytest.mark.slow
def test_a_dead_letter_topic_keeps_its_messages_as_long_as_it_is_set_to(shop: Stubs) -> None:
    name, retention = f"%DLQ%{GROUP}", pb.Retention(by_age=True, keep_ms=60_000)
    assert update_topic(shop, name=name, retention=retention).retention == retention


# ── Browse ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_browsing_reads_by_position_without_any_effect(shop: Stubs, folder: Path) -> None:
    shop.send(*(str(number).encode() for number in range(50)))
    before = dump(folder)
    page = browse(shop)
    assert browsed(page) == [str(number).encode() for number in range(32)]
    assert (page.next_offset, page.min_offset, page.max_offset) == (32, 0, 50)
    assert all((not delivery.handle, delivery.attempt) == (True, 0) for delivery in page.deliveries)
    rest = browse(shop, offset=page.next_offset, max_messages=4096)
    assert browsed(rest) == [str(number).encode() for number in range(32, 50)]
    assert dump(folder) == before
    assert len(bodies(shop.pop(max_messages=50))) == 50


@pytest.mark.parametrize("offset", [50, 51, 2**63 - 1])
def test_browsing_beyond_the_end_is_empty(shop: Stubs, offset: int) -> None:
    shop.send(*(str(number).encode() for number in range(50)))
    page = browse(shop, offset=offset)
    assert (browsed(page), page.next_offset, page.max_offset) == ([], offset, 50)


@pytest.mark.embedded("retries of groups that pop in one order")
@pytest.mark.mechanism("S1.58", "S2.53")
@pytest.mark.slow
def test_a_retry_topic_is_browsed_by_entry_number(shop: Stubs) -> None:
    shop.send(b"a", b"b", b"c")
    for handle in handles(shop.pop()):
        shop.change(handle, release=pb.Release(delay_ms=0, reason="why"))
    page = browse(shop, RETRY)
    assert browsed(page) == [b"a", b"b", b"c"]
    assert [delivery.attempt for delivery in page.deliveries] == [1, 1, 1]
    one = browse(shop, RETRY, max_messages=1)
    assert (browsed(one), one.next_offset) == ([b"a"], one.min_offset + 1)
    assert browsed(browse(shop, RETRY, offset=one.next_offset)) == [b"b", b"c"]
    assert browsed(browse(shop, RETRY, offset=2**63 - 1)) == []


@pytest.mark.slow
def test_a_page_has_a_bound_in_bytes_and_goes_on_where_it_stopped(shop: Stubs) -> None:
    messages = [pb.Message(body=bytes([number]) * (1 << 20)) for number in range(10)]
    shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=messages), timeout=CALL_S)
    found, offset = [], 0
    while (page := browse(shop, offset=offset, max_messages=4096)).deliveries:
        assert page.ByteSize() < 4 << 20, "what stock stubs take"
        found += browsed(page)
        offset = page.next_offset
    assert [body[0] for body in found] == list(range(10))
