"""Page tokens: each belongs to one list. The rows of the pages are tested with each list."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, refusal

SERVICE = pb.DESCRIPTOR.services_by_name["Admin"]
LISTS = sorted(method.name for method in SERVICE.methods if "page_token" in method.input_type.fields_by_name)
#: What a list needs or may have; BrowseRequest has tokens only with an order over all queues.
FIELDS = {"topic": TOPIC, "group": GROUP, "order": pb.NEWEST_FIRST}


def asked(name: str, token: str, **fields: Any) -> Any:
    kind = SERVICE.methods_by_name[name].input_type
    known = {field: value for field, value in FIELDS.items() if field in kind.fields_by_name}
    return getattr(pb, kind.name)(page_token=token, **known | fields)


def answer(shop: Stubs, name: str, token: str = "", **fields: Any) -> Any:
    return getattr(shop.admin, name)(asked(name, token, **fields), timeout=CALL_S)


def assert_is_refused(shop: Stubs, name: str, token: str, **fields: Any) -> None:
    refused = refusal(getattr(shop.admin, name), asked(name, token, **fields))
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", "page_token")


@pytest.mark.parametrize("name", LISTS)
def test_a_text_that_no_answer_had_is_no_page_token(shop: Stubs, name: str) -> None:
    for text in ("x", TOPIC, "0", "t orders", "00000000.", f"00000000.{TOPIC}", ".", "é", "\0"):
        assert_is_refused(shop, name, text)


@pytest.mark.parametrize("name", [name for name in LISTS if name != "ListTopics"])
def test_a_page_token_of_another_list_is_refused(shop: Stubs, name: str) -> None:
    token = answer(shop, "ListTopics", page_size=1, dead_letter_topics=True).next_page_token
    assert token
    assert_is_refused(shop, name, token)


def test_a_page_token_of_the_same_call_with_other_fields_is_refused(shop: Stubs) -> None:
    token = answer(shop, "ListTopics", page_size=1, dead_letter_topics=True).next_page_token
    assert_is_refused(shop, "ListTopics", token)
    shop.send(b"a", b"b")
    token = answer(shop, "Browse", max_messages=1).next_page_token
    assert_is_refused(shop, "Browse", token, search="a")
    assert_is_refused(shop, "Browse", token, order=pb.OLDEST_FIRST)


def test_a_changed_page_token_is_refused_and_an_unchanged_one_serves_pages_of_every_size(shop: Stubs) -> None:
    for name in ("a", "b", "c"):
        shop.create_topic(name)
    first = answer(shop, "ListTopics", page_size=2, dead_letter_topics=True)
    token, shown = first.next_page_token, [topic.name for topic in first.topics]
    assert_is_refused(shop, "ListTopics", token + "x", dead_letter_topics=True)
    for size in (0, 100):
        rest = answer(shop, "ListTopics", token, page_size=size, dead_letter_topics=True).topics
        assert shown + [topic.name for topic in rest] == [f"%DLQ%{GROUP}", "a", "b", "c", TOPIC]
