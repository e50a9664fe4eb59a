"""Refusals and wrong addresses: pages that keep the navigation, the fields of the page, and the place in a list."""

import pytest

import popmq
from popmq_console.pages import ACTIONS
from tests.console.conftest import Browser, Site

NAVIGATION = 'aria-label="Pages"'


@pytest.fixture(autouse=True, scope="module")
def filled(site: Site) -> None:
    """A topic that the reader may receive, with a lease and dead letters, and one that it may not."""
    site.client.topics.create("orders", queues=1)
    site.client.topics.create("hidden", type="DELAY")
    site.client.groups.create("packing")
    site.client.send("orders", [f"order {number}" for number in range(9)])
    site.client.reject(site.client.pop("orders", "packing", max_messages=6), "no room")
    site.client.pop("orders", "packing", max_messages=2, invisible=600)


def test_a_refused_action_keeps_the_navigation_and_leads_back(operator: Browser) -> None:
    operator.get("/topics")
    refused = operator.post("/topics/create", name="no name!", type="NORMAL", back="/topics?q=a")
    assert (refused.status, NAVIGATION in refused.text) == (400, True)
    assert '<a href="/topics?q=a">Back</a>' in refused.text


def test_a_name_that_does_not_exist_keeps_the_navigation(operator: Browser) -> None:
    missing = operator.get("/topic?name=nowhere")
    assert (missing.status, NAVIGATION in missing.text) == (404, True)
    assert "Not found" in missing.plain
    assert "On the command line: popmq topic create nowhere" in missing.plain


@pytest.mark.parametrize("path", ["/nowhere", *ACTIONS])
def test_an_address_without_a_page_keeps_the_navigation(operator: Browser, path: str) -> None:
    answer = operator.get(path)
    assert (answer.status, NAVIGATION in answer.text) == (404, True)
    assert "No such page" in answer.plain


def test_a_refused_page_offers_colours_that_lead_to_a_page(operator: Browser) -> None:
    operator.get("/topics")
    referer = {"Referer": f"http://{operator.netloc}/topics?q=a"}
    refused = operator.post("/topics/create", headers=referer, name="no name!", type="NORMAL")
    assert 'name="to" value="/topics?q=a"' in refused.text


@pytest.mark.parametrize(
    ("path", "field", "words"),
    [
        ("/sessions", "group", "Name a group:"),
        ("/leases", "group", "Name a group or a topic:"),
        ("/owners", "group", "Name a group:"),
        ("/delayed", "topic", "Name a topic:"),
        ("/half", "topic", "Name a topic:"),
    ],
)
def test_a_list_of_all_that_a_key_may_not_see_asks_for_a_name(
    reader: Browser, path: str, field: str, words: str
) -> None:
    answer = reader.get(path)
    assert (answer.status, words in answer.plain, f'name="{field}"' in answer.text) == (403, True, True)


def test_a_key_sees_the_leases_of_what_it_may_receive(reader: Browser) -> None:
    answer = reader.get("/leases?topic=orders")
    assert (answer.status, "2 of 2" in answer.plain) == (200, True)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/leases?group=nobody", ["nobody"]),
        ("/delayed?topic=nowhere", ["nowhere"]),
        ("/messages?topic=nowhere&key=k-1", ["nowhere", "k-1"]),
        ("/messages/why?id=m-404&topic=orders", ["m-404", "orders"]),
    ],
)
def test_a_search_for_what_does_not_exist_keeps_its_fields(operator: Browser, path: str, fields: list[str]) -> None:
    answer = operator.get(path)
    assert answer.status == 404
    assert [field for field in fields if f'value="{field}"' not in answer.text] == []


def test_dead_letters_keep_their_filter_when_some_are_delivered_again(operator: Browser) -> None:
    here = "/dead-letters/group?group=packing&reason=room&offset=2"
    page = operator.get(here)
    assert 'name="back" value="/dead-letters/group?group=packing&amp;reason=room&amp;offset=2"' in page.text
    assert operator.post("/dead-letters/redrive", group="packing", offset="2", back=here).path == here


def test_a_list_keeps_showing_all_topics_when_one_message_is_recalled(site: Site, operator: Browser) -> None:
    receipt = site.client.send("hidden", popmq.Message("x", delay=600))
    done = operator.post("/delayed/recall", topic="hidden", handle=receipt.recall_handle, back="/delayed")
    assert done.path == "/delayed"
