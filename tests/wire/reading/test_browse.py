"""Browse over all queues: newest or oldest first, and searches, over the wire."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.loop import aside
from popmq_server.embedded.rules.inspect import search
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, handles, refusal

DEAD = f"%DLQ%{GROUP}"
NEWEST, OLDEST = pb.NEWEST_FIRST, pb.OLDEST_FIRST


@pytest.fixture
def shop(stubs: Stubs) -> Stubs:
    stubs.create_topic(queues=4)
    stubs.create_group()
    return stubs


def browse(shop: Stubs, order: pb.BrowseOrder = NEWEST, topic: str = TOPIC, **fields: Any) -> pb.BrowseResponse:
    request = pb.BrowseRequest(topic=topic, order=order, **fields)
    answer: pb.BrowseResponse = shop.admin.Browse(request, timeout=CALL_S)
    return answer


def pages(shop: Stubs, order: pb.BrowseOrder = NEWEST, topic: str = TOPIC, **fields: Any) -> list[list[str]]:
    """The bodies page by page, until no token comes."""
    found, token = list[list[str]](), ""
    while True:
        page = browse(shop, order, topic, page_token=token, **fields)
        found.append([each.message.body.decode() for each in page.deliveries])
        token = page.next_page_token
        if not token:
            return found


def numbered(shop: Stubs, count: int, clock: FakeClock) -> list[str]:
    """Messages that are sent one by one, a second apart, and so lie in all queues in turns."""
    texts = [f"m{number:03}" for number in range(count)]
    for text in texts:
        shop.send(text.encode())
        clock.advance(1000)
    return texts


def test_messages_of_all_queues_come_newest_first_or_oldest_first(shop: Stubs, clock: FakeClock) -> None:
    texts = numbered(shop, 10, clock)
    page = browse(shop)
    assert [each.message.body.decode() for each in page.deliveries] == texts[::-1]
    assert {each.queue for each in page.deliveries} == {0, 1, 2, 3}
    assert (page.looked_at, page.next_page_token) == (10, "")
    assert pages(shop, OLDEST) == [texts]


@pytest.mark.parametrize("order", [NEWEST, OLDEST])
def test_pages_follow_each_other_without_gap_or_repeat(
    shop: Stubs, clock: FakeClock, order: pb.BrowseOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PIECE_RECORDS", 2)
    texts = numbered(shop, 10, clock)
    shop.send(*(f"batch{number}".encode() for number in range(5)))
    texts += [f"batch{number}" for number in range(5)]
    found = pages(shop, order, max_messages=4)
    assert [text for page in found for text in page] == (texts[::-1] if order == NEWEST else texts)
    assert max(map(len, found)) == 4


def test_messages_that_come_meanwhile_are_behind_the_newest_and_after_the_oldest(shop: Stubs, clock: FakeClock) -> None:
    texts = numbered(shop, 4, clock)
    new, old = browse(shop, max_messages=2), browse(shop, OLDEST, max_messages=2)
    shop.send(b"late")
    rest = browse(shop, page_token=new.next_page_token)
    assert [each.message.body.decode() for each in rest.deliveries] == texts[1::-1]
    rest = browse(shop, OLDEST, page_token=old.next_page_token)
    assert [each.message.body.decode() for each in rest.deliveries] == [*texts[2:], "late"]


def test_a_search_finds_its_text_in_every_field_that_people_look_for(shop: Stubs) -> None:
    messages = [
        pb.Message(message_id="id-needle", body=b"x"),
        pb.Message(message_id="1", body=b"a needle in hay"),
        pb.Message(message_id="2", body=b"x", tag="needle"),
        pb.Message(message_id="3", body=b"x", keys=["k", "needle-7"]),
        pb.Message(message_id="4", body=b"x", properties={"who": "needle"}),
        pb.Message(message_id="5", body=b"x", properties={"needle": "who"}),
        pb.Message(message_id="6", body=b"Needle"),
        pb.Message(message_id="7", body=b"x", born_host="needle"),
    ]
    shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=messages), timeout=CALL_S)
    page = browse(shop, OLDEST, search="needle")
    assert [each.message.message_id for each in page.deliveries] == ["id-needle", "1", "2", "3", "4", "5"]
    assert page.looked_at == len(messages)


def test_dead_letters_are_searched_by_reason_and_redriven_ones_are_left_out(shop: Stubs) -> None:
    shop.send(b"a", b"b")
    first, second = handles(shop.pop(max_messages=2))
    shop.change(first, reject=pb.Reject(reason="no such account"))
    shop.change(second, reject=pb.Reject(reason="timeout"))
    assert pages(shop, topic=DEAD, search="account") == [["a"]]
    shop.admin.RedriveDeadLetters(pb.RedriveDeadLettersRequest(group=GROUP, offsets=[0]), timeout=CALL_S)
    assert pages(shop, topic=DEAD) == [["b"]]


def test_a_time_limits_both_orders(shop: Stubs, clock: FakeClock) -> None:
    begin = clock.now_ms()
    texts = numbered(shop, 10, clock)
    bounds: dict[str, Any] = {"from_ms": begin + 2000, "until_ms": begin + 5000}
    assert pages(shop, **bounds) == [texts[5:1:-1]]
    assert pages(shop, OLDEST, **bounds) == [texts[2:6]]


def test_a_search_that_finds_nothing_goes_on_page_by_page_and_says_how_far_it_is(
    shop: Stubs, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PIECE_CHUNKS", 1)
    monkeypatch.setattr(aside, "PIECES_MAX", 1)
    shop.send(b"needle")
    for _ in range(3):
        shop.send(*(bytes([65 + at]) * 9000 for at in range(4)))
    looked_at, token, found = list[int](), "", list[pb.Delivery]()
    while True:
        page = browse(shop, search="needle", page_token=token)
        looked_at.append(page.looked_at)
        found += page.deliveries
        if not (token := page.next_page_token):
            break
    assert [each.message.body for each in found] == [b"needle"]
    assert sum(looked_at) == 13
    assert len(looked_at) > 2


def test_messages_of_lite_topics_are_found_in_their_topic(shop: Stubs) -> None:
    shop.create_topic("chats", type=pb.LITE)
    messages = [pb.Message(message_id=name, body=name.encode(), lite_topic=name) for name in ("ann", "bob")]
    for message in messages:
        shop.broker.Send(pb.SendRequest(topic="chats", messages=[message]), timeout=CALL_S)
    assert pages(shop, topic="chats") == [["bob", "ann"]]
    assert pages(shop, OLDEST, "chats", search="bob") == [["bob"]]


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"order": NEWEST, "queue": 1}, "INVALID_FIELD", "queue"),
        ({"order": NEWEST, "offset": 1}, "INVALID_FIELD", "offset"),
        ({"search": "x"}, "INVALID_FIELD", "search"),
        ({"page_token": "x"}, "INVALID_FIELD", "page_token"),
        ({"order": NEWEST, "page_token": "x"}, "INVALID_FIELD", "page_token"),
        ({"order": NEWEST, "page_token": "oldest.1.7"}, "INVALID_FIELD", "page_token"),
        ({"order": 7}, "INVALID_FIELD", "order"),
        ({"order": NEWEST, "search": "x" * 257}, "INVALID_FIELD", "search"),
        ({"order": NEWEST, "from_ms": 2, "until_ms": 1}, "INVALID_FIELD", "until_ms"),
        ({"order": NEWEST, "topic": f"%RETRY%{GROUP}+{TOPIC}"}, "INVALID_FIELD", "order"),
        ({"order": NEWEST, "topic": "nothing"}, "TOPIC_NOT_FOUND", "topic"),
    ],
)
def test_fields_that_exclude_each_other_are_refused_by_name(
    shop: Stubs, fields: dict[str, Any], code: str, field: str
) -> None:
    request = pb.BrowseRequest(**{"topic": TOPIC, **fields})
    refused = refusal(shop.admin.Browse, request)
    assert (refused.code, refused.info.field) == (code, field)
