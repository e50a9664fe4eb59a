"""The console of a gateway: it offers what a cluster has, and nothing that the gateway would refuse as lacking."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any, NamedTuple

import pytest

import popmq
from popmq_console.pages import ACTIONS, NAVIGATION
from popmq_server.clock import SystemClock
from popmq_server.cluster.operating import listed
from popmq_server.embedded_broker import EmbeddedBroker
from tests.console.conftest import Answer, Browser, console
from tests.wire.served import ServedCluster

TOPIC, GROUP = "orders", "billing"
#: Pages of what a cluster lacks.
LACKING = {"/leases", "/message-groups", "/owners", "/delayed", "/half", "/schedules"}
LINKS = re.compile(r'<a [^>]*href="(/[^"]*)"')
FORMS = re.compile(r'<form method="post" action="([^"]*)".*?</form>', re.DOTALL)
FIELDS = re.compile(r'<(?:input|textarea)[^>]*name="([^"]*)"([^>]*)|<option( selected)?>')


class Shown(NamedTuple):
    """A gateway to two brokers with some messages, and its console."""

    served: ServedCluster
    url: str
    client: popmq.Client

    def browser(self) -> Browser:
        return Browser(self.url)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    monkeypatch.setattr(listed, "AGAIN_S", 0.0)
    with (
        ServedCluster(SystemClock()) as served,
        popmq.Client(served.endpoint) as client,
        console(served.endpoint) as url,
    ):
        client.topics.create(TOPIC, queues=2)
        client.groups.create(GROUP)
        client.send(TOPIC, [popmq.Message(f"order {number}", key="k") for number in range(5)])
        for number in range(2):  # one on each broker
            client.send(TOPIC, popmq.Message("dead", message_id=f"dead-{number}"))
        client.reject([each for each in client.pop(TOPIC, GROUP) if each.text() == "dead"], "nothing fits")
        yield Shown(served, url, client)


def offered(page: Answer) -> list[str]:
    """The addresses of the navigation."""
    navigation = page.text.partition('aria-label="Pages"')[2].partition("</nav>")[0]
    return [unescape(address) for address in LINKS.findall(navigation)]


def actions(page: Answer) -> set[str]:
    """What the buttons of a page do."""
    return {*FORMS.findall(page.text), *re.findall(r'formaction="([^"]*)"', page.text)}


def every_page(browser: Browser) -> dict[str, Answer]:
    """All pages that links lead to, from the first page on."""
    found: dict[str, Answer] = {}
    left = ["/"]
    while left:
        address = left.pop()
        page = found[address] = browser.get(address)
        assert page.status == 200, f"{address}: {page.plain}"
        left += {unescape(each) for each in LINKS.findall(page.text)} - found.keys() - {*left}
    return found


def test_a_gateway_has_a_page_of_brokers_and_none_of_what_it_lacks(shown: Shown) -> None:
    every = [address for address, _, _ in NAVIGATION]
    assert offered(shown.browser().get("/")) == [each for each in every if each not in LACKING]


def test_a_broker_that_keeps_its_messages_itself_has_no_page_of_brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with EmbeddedBroker(tmp_path_factory.mktemp("data"), sync="none") as broker, console(broker.endpoint) as url:
        browser = Browser(url)
        assert offered(browser.get("/")) == [address for address, _, _ in NAVIGATION if address != "/brokers"]
        page = browser.get("/brokers")
        assert (page.status, "no cluster is behind it" in page.plain) == (404, True)


def test_no_link_and_no_button_leads_to_what_a_gateway_lacks(shown: Shown) -> None:
    pages = every_page(shown.browser())
    assert {address.partition("?")[0] for address in pages} >= {
        *("/topics", "/topic", "/groups", "/group", "/messages", "/message", "/message/new", "/sessions"),
        *("/dead-letters", "/dead-letters/group", "/brokers", "/keys"),
    }
    buttons = {button for page in pages.values() for button in actions(page)}
    assert {f"/{each}" for each in ("topic/purge", "group/filter", "dead-letters/discard")} & buttons == set()
    assert buttons <= {*ACTIONS, "/theme"}
    assert buttons >= {"/topic/change", "/group/change", "/group/reset", "/dead-letters/redrive", "/messages/send"}
    assert [address for address, page in pages.items() if "None" in page.plain] == []


@pytest.mark.parametrize(
    ("page", "action", "form"),
    [
        ("/topics", "/topics/create", {"name": "more", "type": "NORMAL", "queues": "3"}),
        (f"/topic?name={TOPIC}", "/topic/change", {"name": TOPIC, "queues": "4"}),
        (f"/topic?name={TOPIC}", "/topic/permit", {"name": TOPIC, "permission": "READ_ONLY"}),
        (f"/topic?name={TOPIC}", "/topic/delete", {"name": TOPIC, "typed": TOPIC}),
        ("/groups", "/groups/create", {"name": "more", "start": "latest", "max_attempts": "3"}),
        (f"/group?name={GROUP}", "/group/change", {"name": GROUP, "max_attempts": "4", "invisible": "90s"}),
        (f"/group?name={GROUP}", "/group/pause", {"name": GROUP, "paused": "yes"}),
        (f"/group?name={GROUP}", "/group/reset", {"name": GROUP, "topic": TOPIC, "to": "latest", "typed": GROUP}),
        (f"/group?name={GROUP}", "/group/delete", {"name": GROUP, "typed": GROUP}),
        ("/message/new", "/messages/send", {"topic": TOPIC, "body": "another"}),
        (f"/dead-letters/group?group={GROUP}", "/dead-letters/redrive", {"group": GROUP, "id": "dead-1"}),
        (f"/dead-letters/group?group={GROUP}", "/dead-letters/redrive-all", {"group": GROUP}),
    ],
)
def test_what_a_gateway_offers_it_does(shown: Shown, page: str, action: str, form: dict[str, Any]) -> None:
    browser = shown.browser()
    offer = browser.get(page)
    assert action in actions(offer)
    done = browser.post(action, back=page, **form)
    assert (done.status, 'class="said done"' in done.text) == (200, True), done.plain


def test_the_messages_of_a_topic_are_shown_without_a_search_of_all_queues(shown: Shown) -> None:
    page = shown.browser().get(f"/messages?topic={TOPIC}")
    assert [f"order {number}" in page.plain for number in range(5)] == [True] * 5
    assert 'name="q"' not in page.text
    assert "order 3" in shown.browser().get(f"/messages?topic={TOPIC}&key=k").plain


def test_dead_letters_of_all_brokers_are_shown_and_delivered_again(shown: Shown) -> None:
    browser = shown.browser()
    page = browser.get(f"/dead-letters/group?group={GROUP}")
    assert ("2 dead letters in all" in page.plain, sorted(re.findall(r"Tick (dead-\d)", page.text))) == (
        True,
        ["dead-0", "dead-1"],
    )
    done = browser.post("/dead-letters/redrive", group=GROUP, id=["dead-0", "dead-1"])
    assert "Delivered again: 2 dead letters." in done.plain
    shown.client.reject([each for each in shown.client.pop(TOPIC, GROUP) if each.text() == "dead"], "it fits less")
    browser.post("/dead-letters/redrive-all", group=GROUP, reason="fits less")
    while "Delivering again" in (said := browser.get(f"/dead-letters/group?group={GROUP}").plain):
        pass
    assert "2 delivered again; 4 of 4 looked at." in said


def test_what_a_cluster_does_not_count_is_a_dash(shown: Shown) -> None:
    browser = shown.browser()
    overview = browser.get("/").plain
    for said in ("In flight –", "Oldest –", "Sessions –", "Commits –", "In quarantine –"):
        assert said in overview, said
    topic = browser.get(f"/topic?name={TOPIC}").plain
    for said in ("Size –", "Delayed –", "Half –", "Kept –"):
        assert said in topic, said
    assert "In flight at most –" in browser.get(f"/group?name={GROUP}").plain


def test_the_page_of_brokers_shows_each_with_what_it_tells(shown: Shown) -> None:
    page = shown.browser().get("/brokers").plain
    assert "Brokers 2 No answer 0 Routes heard" in page
    a, b = (shown.served.fake.brokers[name] for name in "ab")
    for name, broker in (("a", a), ("b", b)):
        assert f"{name} master {broker.address} up V5_3_3 0" in page
        assert "75.0 GiB free of 100.0 GiB" in page


def test_a_broker_that_is_down_is_shown_so_and_what_it_would_tell_is_a_dash(shown: Shown) -> None:
    broker = shown.served.fake.brokers["b"]
    address = broker.address
    shown.served.within(broker.stop())
    page = shown.browser().get("/brokers").plain
    assert "Brokers 2 No answer 1" in page
    assert re.search(rf"b master {re.escape(address)} down .* – – – – 0", page), page
