"""Filters over the wire: named by a Pop, fixed for the group, replaced by an operator, and never in the way."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Refusal, Stubs, bodies, read_refusal, refusal

RED, BLUE, BIG = pb.Filter(tag="red"), pb.Filter(tag="blue"), pb.Filter(sql92="size > 5")
SEND_MAX = 4096


def send(shop: Stubs, *messages: pb.Message) -> None:
    answer = shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=messages), timeout=CALL_S)
    assert not any(result.HasField("error") for result in answer.results)


def tagged(*tags: str) -> list[pb.Message]:
    return [pb.Message(body=f"{tag}{place}".encode(), tag=tag) for place, tag in enumerate(tags)]


def set_filter(shop: Stubs, **fields: Any) -> pb.Subscription:
    request = pb.SetFilterRequest(topic=TOPIC, group=GROUP, **fields)
    answer: pb.SetFilterResponse = shop.admin.SetFilter(request, timeout=CALL_S)
    return answer.subscription


def subscriptions(shop: Stubs) -> list[pb.Subscription]:
    return list(shop.admin.GetGroup(pb.GetGroupRequest(name=GROUP), timeout=CALL_S).subscriptions)


def refused_pop(shop: Stubs, filter: pb.Filter) -> Refusal:
    return refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, filter=filter))


@pytest.mark.parametrize(
    ("filter", "field", "place"),
    [
        (pb.Filter(sql92="size >"), "filter.sql92", "line 1, column 7 (offset 6)"),
        (pb.Filter(sql92="size > 5\nAND size LIKE 'x'"), "filter.sql92", "line 2, column 10 (offset 18)"),
        (pb.Filter(sql92=""), "filter.sql92", "line 1, column 1 (offset 0)"),
        (pb.Filter(sql92="a = '" + "x" * 16384 + "'"), "filter.sql92", "16390 bytes"),
        (pb.Filter(tag="||"), "filter.tag", "no tag"),
        (pb.Filter(tag="red || a b"), "filter.tag", "line 1, column 8 (offset 7)"),
    ],
)
def test_a_filter_that_cannot_be_is_refused_with_its_place(
    shop: Stubs, filter: pb.Filter, field: str, place: str
) -> None:
    for call, request in (
        (shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, filter=filter)),
        (shop.admin.SetFilter, pb.SetFilterRequest(topic=TOPIC, group=GROUP, filter=filter)),
    ):
        refused = refusal(call, request)
        assert (refused.code, refused.info.field) == ("FILTER_INVALID", field)
        assert place in refused.info.message
    assert subscriptions(shop) == []


def test_set_filter_ends_every_parked_call_that_names_the_old_one(shop: Stubs, parked: Parked) -> None:
    """Also one that is in line behind calls that take the filter of the group."""
    shop.pop(filter=RED)
    asked = [None, RED, None, RED]
    pops = [shop.broker.Pop.future(waiting(pb.PopRequest, filter=one, max_messages=1), timeout=CALL_S) for one in asked]
    named = [shop.broker.Pop.future(waiting(pb.PopRequest, filter=RED, queues=[0]), timeout=CALL_S)]
    watch = [
        shop.broker.WaitAvailable.future(waiting(pb.WaitAvailableRequest, filter=RED, min_ready=1), timeout=CALL_S)
    ]
    parked.wait_for(6)
    set_filter(shop, filter=BLUE)
    for call in (pops[1], pops[3], *named, *watch):
        assert read_refusal(call.exception(CALL_S)).code == "FILTER_CONFLICT"
    parked.wait_for(8)  # those without a filter go on with the new one
    send(shop, *tagged("blue", "blue"))
    assert {*bodies(pops[0].result(CALL_S)), *bodies(pops[2].result(CALL_S))} == {b"blue0", b"blue1"}


def test_set_filter_ends_parked_pulls_that_name_the_old_one(shop: Stubs, parked: Parked) -> None:
    shop.admin.SetConsumeMode(pb.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode="PULL"), timeout=CALL_S)
    pulls = [
        shop.broker.Pull.future(waiting(pb.PullRequest, filter=one, queue=0), timeout=CALL_S) for one in (RED, None)
    ]
    parked.wait_for(2)
    set_filter(shop, filter=BLUE)
    assert read_refusal(pulls[0].exception(CALL_S)).code == "FILTER_CONFLICT"
    parked.wait_for(3)
    pulls[1].cancel()


def waiting(kind: Any, **fields: Any) -> Any:
    """A request of the group that waits for a message."""
    return kind(topic=TOPIC, group=GROUP, wait_ms=20_000, **fields)


@pytest.mark.capability("filters")
def test_a_group_shows_each_topic_that_it_has_named(shop: Stubs) -> None:
    shop.create_topic("another")
    shop.pop(filter=BIG)
    shop.broker.WaitAvailable(pb.WaitAvailableRequest(topic="another", group=GROUP), timeout=CALL_S)
    assert subscriptions(shop) == [pb.Subscription(topic="another"), pb.Subscription(topic=TOPIC, filter=BIG)]


@pytest.mark.mechanism("S4.16", "S4.13")
@pytest.mark.slow
def test_a_parked_pop_is_woken_for_its_whole_filter_and_not_for_its_tag_alone(shop: Stubs, parked: Parked) -> None:
    call = shop.pop_later(filter=pb.Filter(sql92="TAGS = 'red' AND size > 5"))
    parked.wait_for(1)
    for place, size in enumerate([1, 5]):
        send(shop, pb.Message(body=b"small", tag="red", properties={"size": str(size)}))
        parked.wait_for(2 + place)
    send(shop, pb.Message(body=b"large", tag="red", properties={"size": "6"}))
    assert bodies(call.result(timeout=CALL_S)) == [b"large"]


@pytest.mark.slow
def test_numbers_and_browsing_are_not_filtered(shop: Stubs) -> None:
    shop.pop(filter=RED)
    send(shop, *tagged("red", "blue", "blue"))
    ready = shop.broker.WaitAvailable(pb.WaitAvailableRequest(topic=TOPIC, group=GROUP), timeout=CALL_S).ready
    page = shop.admin.Browse(pb.BrowseRequest(topic=TOPIC), timeout=CALL_S)
    assert (ready, shop.stats().ready, len(page.deliveries)) == (3, 3, 3)


# ── A needle in a haystack ───────────────────────────────────────────────────────────────────────────────────────────


def haystack(shop: Stubs, count: int, needle: pb.Message) -> None:
    """`count` messages that match nothing, then one that does."""
    hay = pb.Message(body=b"hay", tag="blue", properties={"size": "1"})
    for start in range(0, count, SEND_MAX):
        send(shop, *[hay] * min(SEND_MAX, count - start))
    send(shop, needle)


NEEDLE = pb.Message(body=b"needle", tag="red", properties={"size": "9"})


@pytest.mark.mechanism("D.55", "I.18")
@pytest.mark.slow
@pytest.mark.parametrize("wait_ms", [0, 60_000])
@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_one_match_in_a_hundred_thousand_is_found_without_waiting(
    shop: Stubs, parked: Parked, count: int, wait_ms: int
) -> None:
    """The clock stands still: a Pop that parked would never come back."""
    haystack(shop, count, NEEDLE)
    assert bodies(shop.pop(filter=RED, wait_ms=wait_ms)) == [b"needle"]
    with pytest.raises(AssertionError, match="0 of 1 parked"):
        parked.wait_for(1, within_s=0)
    assert shop.stats().filtered == count


@pytest.mark.capability("filters")
@pytest.mark.parametrize("letter", ["x", "é", "🐰"])
def test_a_conflict_of_very_long_filters_still_reaches_its_caller(shop: Stubs, letter: str) -> None:
    """Trailers have 8 KiB; a refusal that quotes the filters of a request must not be longer."""
    one, two = (pb.Filter(sql92=f"a = '{letter * 1900}{number}'") for number in (1, 2))
    shop.pop(filter=one)
    refused = refused_pop(shop, two)
    assert refused.code == "FILTER_CONFLICT"
    assert refused.info.message.endswith("…")
