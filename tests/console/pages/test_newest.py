"""The newest messages of all queues, a text in them, and the page that follows them."""

import html
import re

import popmq
from tests.console.conftest import Browser, Site


def test_the_newest_messages_of_all_queues_come_first_and_a_text_is_found_in_them(
    site: Site, operator: Browser
) -> None:
    site.client.topics.create("newest", queues=3)
    for number in range(60):
        one = popmq.Message(f"body {number}", message_id=f"m-{number:02}", properties={"needle": str(number % 20)})
        site.client.send("newest", one)
    page = operator.get("/messages?topic=newest")
    shown = re.findall(r">(m-\w+)</a>", page.text)
    link = re.search(r'rel="next" href="([^"]+)"', page.text)
    assert link
    shown += re.findall(r">(m-\w+)</a>", operator.get(html.unescape(link[1])).text)
    assert shown == [f"m-{number:02}" for number in reversed(range(60))]
    found = operator.get("/messages?topic=newest&q=body+41")
    assert re.findall(r">(m-\w+)</a>", found.text) == ["m-41"]
    assert "'body 41' was looked for in 60 messages; that is all." in found.plain
    assert "No message was found." in operator.get("/messages?topic=newest&q=nothing").plain


def test_new_messages_appear_on_an_open_page_that_follows_them(site: Site, operator: Browser) -> None:
    site.client.topics.create("followed", queues=2)
    assert "Follow them live" in operator.get("/messages?topic=followed").plain
    with operator.follow("/messages?topic=followed&live=1") as events:
        assert "No message was found." in next(events)[1]
        site.client.send("followed", popmq.Message("x", message_id="m-new"))
        shown = ""
        while "m-new" not in shown:
            _, shown = next(events)
