"""The pages of a gateway in Chromium: what a cluster has looks right, also while one of its brokers is down."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

import popmq
from popmq_server.clock import SystemClock
from tests.console.chromium import LONG_NAME, Chromium, a_window, complaints
from tests.console.conftest import console
from tests.wire.served import ServedCluster

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topic?name=orders",
    "groups": "/groups",
    "group": "/group?name=packing",
    "messages": "/messages?topic=orders",
    "message": "/message?topic=orders&queue=0&offset=0",
    "send": "/message/new?topic=orders",
    "dead-letters": "/dead-letters",
    "dead-letters-group": "/dead-letters/group?group=packing",
    "sessions": "/sessions",
    "brokers": "/brokers",
    "keys": "/keys",
}
WIDTHS = (1920, 1000, 360)


class Window(NamedTuple):
    """A window of Chromium, and the gateway that it shows."""

    chromium: Chromium
    served: ServedCluster


@pytest.fixture(scope="module")
def window() -> Iterator[Window]:
    with (
        ServedCluster(SystemClock()) as served,
        popmq.Client(served.endpoint) as client,
        console(served.endpoint) as url,
        a_window(url) as chromium,
    ):
        fill(client)
        served.fake.brokers["a"].replicas = [True, False]
        yield Window(chromium, served)


def fill(client: popmq.Client) -> None:
    """Something on every page."""
    client.topics.create("orders", queues=2)
    client.topics.create("steps", type="FIFO", queues=1)
    for group in ("billing", "packing", LONG_NAME[:60]):
        client.groups.create(group)
    client.send("orders", popmq.Message.json({"order": 1}, key="first", message_id="m-1"))
    client.send("orders", [popmq.Message.json({"order": number}) for number in range(2, 60)])
    client.reject(client.pop("orders", "packing", max_messages=4), "Traceback …\nValueError: nothing fits")
    client.pop("orders", "billing", max_messages=5)
    client.sessions.heartbeat("billing", ["orders"])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_of_a_gateway_fits_its_window(window: Window, width: int, theme: str) -> None:
    assert complaints(window.chromium, PAGES, width, theme, "gateway-") == ([], [], [])


def test_the_page_of_brokers_is_found_in_the_navigation(window: Window) -> None:
    window.chromium.open("/")
    window.chromium.driver.find_element("link text", "Brokers").click()
    window.chromium.until("No answer")
    assert "Leases" not in window.chromium.find("nav.side").text


def test_an_open_page_of_brokers_shows_that_one_stops(window: Window) -> None:
    window.chromium.open("/brokers")
    window.chromium.until("up")
    window.served.within(window.served.fake.brokers["b"].stop())
    window.chromium.until("down")
    for width in WIDTHS:
        for theme in ("light", "dark"):
            shown = complaints(window.chromium, {"brokers-one-down": "/brokers"}, width, theme, "gateway-")
            assert shown == ([], [], [])
