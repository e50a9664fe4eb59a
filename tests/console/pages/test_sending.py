"""Sending a message from a form."""

import re
from typing import Any

import pytest

from tests.console.conftest import Browser, Site


@pytest.fixture(autouse=True, scope="module")
def filled(site: Site) -> None:
    """Topics to send to."""
    site.client.topics.create("orders", queues=2)
    site.client.topics.create("later", type="DELAY")
    site.client.topics.create("steps", type="FIFO", queues=1)


def test_a_message_is_sent_from_a_form_as_it_was_typed(site: Site, operator: Browser) -> None:
    site.client.topics.create("typed", queues=1)
    assert 'action="/messages/send"' in operator.get("/message/new?topic=typed").text
    form: dict[str, Any] = {"key": "k 1", "tag": "red", "properties": "region = eu\r\n\r\nnote=a=b"}
    done = operator.post("/messages/send", topic="typed", body="  two\r\nlines ", **form)
    assert re.search(r"Stored as \S+\.", done.plain)
    (sent,) = site.client.messages.browse("typed").deliveries
    assert (sent.body, sent.key, sent.tag) == (b"  two\nlines ", "k 1", "red")
    assert dict(sent.properties) == {"region": "eu", "note": "a=b"}


def test_a_message_for_later_and_one_of_a_message_group_are_sent(site: Site, operator: Browser) -> None:
    assert "it is delayed" in operator.post("/messages/send", topic="later", body="x", delay="2h").plain
    assert site.client.messages.list_delayed("later").total == 1
    operator.post("/messages/send", topic="steps", body="x", message_group="typed")
    assert "typed" in [one.message_group for one in site.client.messages.browse("steps").deliveries]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("properties", "a=b\nnonsense", "line 2 of the properties is not name=value"),
        ("delay", "5", "write 90s, 12h or 3d"),
        ("priority", "high", "not a whole number"),
        ("topic", "nowhere", "nowhere"),
        ("body", "", "body"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused_with_a_sentence(
    operator: Browser, field: str, value: str, said: str
) -> None:
    form: dict[str, Any] = {"topic": "orders", "body": "x", field: value}
    refused = operator.post("/messages/send", **form)
    assert 400 <= refused.status < 500
    assert said in refused.plain


def test_a_key_that_may_not_send_is_offered_no_form_and_is_refused(site: Site, reader: Browser) -> None:
    assert "has no right to send" in reader.get("/message/new?topic=orders").plain
    assert reader.post("/messages/send", topic="orders", body="x").status == 403
    assert reader.post("/messages/send", csrf="another", topic="orders", body="x").status == 403
