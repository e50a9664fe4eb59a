"""How many logins and attempts there may be, and when a login ends."""

import asyncio
import http.client
import time
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.requests import Request

from popmq import errors
from popmq.stats import AccessKey, AccessKeys, BrokerInfo
from popmq_console import app
from popmq_console.attempts import (
    COUNTS_MAX,
    FAILED_ADDRESS_MAX,
    FAILED_MAX,
    FAILED_S,
    Attempts,
    TooManyAttempts,
    counted,
)
from popmq_console.guards import origin
from popmq_console.logins import IDLE_S, LIFE_S, LOGINS_MAX, LOGINS_PER_KEY, RIGHTS_S, Logins
from popmq_console.options import Options
from tests.console.conftest import SECRET, Browser, Seconds, Site, console

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"
RIGHT = "right"


class Client:
    """A client of a broker that knows one secret; it answers when `gate` is set."""

    def __init__(self, secret: str, gate: asyncio.Event | None = None) -> None:
        self._secret, self._gate = secret, gate
        self.open = True
        self.allow = ["receive"]
        self.broker = self.access_keys = self

    async def stats(self) -> None:
        raise errors.Unauthenticated("which key?")

    async def list(self) -> AccessKeys:
        if self._gate:
            await self._gate.wait()
        if self._secret != RIGHT:
            raise errors.Unauthenticated("no such key")
        return AccessKeys(True, [AccessKey("operator", self.allow, 0, 1)], "operator")

    async def info(self) -> BrokerInfo:
        return BrokerInfo("0", "embedded", {}, {})

    async def close(self) -> None:
        self.open = False

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Desk:
    """Logins at a broker that is not there. `clients`: all that were made for logins."""

    def __init__(self, gate: asyncio.Event | None = None) -> None:
        self.clock = Seconds()
        self.clients: list[Client] = []
        self._gate = gate
        self.logins = Logins(self._connect, 1.0, self.clock)

    def _connect(self, name: str, secret: str) -> Any:
        made = Client(secret, self._gate)
        self.clients += [made] if name else []
        return made

    @property
    def connections(self) -> int:
        return sum(client.open for client in self.clients)

    async def outcome(self, name: str, secret: str, address: str) -> str:
        try:
            await self.logins.log_in(name, secret, address)
        except errors.PopMQError as error:
            return type(error).__name__
        return "in"


async def test_attempts_at_the_same_time_count_too() -> None:
    gate = asyncio.Event()
    desk = Desk(gate)
    tasks = [asyncio.create_task(desk.outcome("operator", "wrong", HERE)) for _ in range(60)]
    await asyncio.sleep(0)
    gate.set()
    outcomes = await asyncio.gather(*tasks)
    assert outcomes.count("Unauthenticated") == FAILED_MAX
    assert outcomes.count("TooManyAttempts") == 60 - FAILED_MAX
    assert len(desk.clients) == FAILED_MAX


async def test_a_stranger_does_not_lock_out_the_owner_of_a_key() -> None:
    desk = Desk()
    for _ in range(FAILED_ADDRESS_MAX):
        await desk.outcome("operator", "wrong", HERE)
    assert await desk.outcome("operator", RIGHT, HERE) == "TooManyAttempts"
    assert await desk.outcome("operator", RIGHT, ELSEWHERE) == "in"
    assert await desk.outcome("reader", RIGHT, HERE) == "in"
    desk.clock.now_s += FAILED_S
    assert await desk.outcome("operator", RIGHT, HERE) == "in"


async def test_a_login_has_the_rights_that_its_key_has_now() -> None:
    desk = Desk()
    cookie = await desk.logins.log_in("operator", RIGHT, HERE)
    login = await desk.logins.find(cookie)
    assert login is not None
    for allow, admin in (["send", "admin"], True), (["receive:orders"], False), (["*"], True):
        desk.clients[0].allow = allow
        desk.clock.now_s += RIGHTS_S
        await desk.logins.find(cookie)
        assert login.admin is admin


async def test_an_address_that_tries_many_names_has_to_wait() -> None:
    desk = Desk()
    outcomes = [await desk.outcome(f"name-{number}", "wrong", HERE) for number in range(FAILED_ADDRESS_MAX + 1)]
    assert outcomes == ["Unauthenticated"] * FAILED_ADDRESS_MAX + ["TooManyAttempts"]
    assert len(desk.clients) == FAILED_ADDRESS_MAX


async def test_logins_that_succeed_never_have_to_wait() -> None:
    desk = Desk()
    assert {await desk.outcome("operator", RIGHT, HERE) for _ in range(FAILED_ADDRESS_MAX * 2)} == {"in"}


def test_the_table_of_attempts_has_a_bound_and_forgets_the_oldest() -> None:
    attempts = Attempts(Seconds())
    for _ in range(FAILED_MAX):
        attempts.begin("first", "key")
    with pytest.raises(TooManyAttempts):
        attempts.begin("first", "key")
    for number in range(COUNTS_MAX):
        attempts.begin(f"address-{number}", "key")
    assert len(attempts._counts) <= COUNTS_MAX
    attempts.begin("first", "key")


def test_an_address_that_has_to_wait_fills_no_table() -> None:
    attempts = Attempts(Seconds())
    for number in range(FAILED_ADDRESS_MAX):
        attempts.begin(HERE, f"name-{number}")
    before = len(attempts._counts)
    for number in range(50):
        with pytest.raises(TooManyAttempts):
            attempts.begin(HERE, f"other-{number}")
    assert len(attempts._counts) == before


def test_a_host_counts_once_with_all_its_ipv6_addresses() -> None:
    assert counted("2001:db8:1:2::3") == counted("2001:db8:1:2:ffff::9") != counted("2001:db8:1:3::3")
    assert counted("::ffff:192.0.2.1") == counted("192.0.2.1") == "192.0.2.1"


@pytest.mark.parametrize(
    ("public_url", "named", "seen"),
    [
        ("", ELSEWHERE, HERE),
        ("https://console.example", ELSEWHERE, ELSEWHERE),
        ("https://console.example", f"198.51.100.7, {ELSEWHERE}", ELSEWHERE),
        ("https://console.example", "nonsense", HERE),
    ],
)
def test_a_proxy_names_the_browser_only_where_a_proxy_was_named(public_url: str, named: str, seen: str) -> None:
    headers = [(b"x-forwarded-for", named.encode())]
    request = Request({"type": "http", "headers": headers, "client": (HERE, 1)})
    assert origin(request, Options("broker:8081", public_url=public_url)) == seen


async def test_a_key_holds_few_connections_however_often_it_logs_in() -> None:
    desk = Desk()
    other = await desk.logins.log_in("operator", RIGHT, HERE)
    cookies = [await desk.logins.log_in("guest", RIGHT, HERE) for _ in range(LOGINS_PER_KEY * 3)]
    assert desk.connections == LOGINS_PER_KEY + 1
    assert await desk.logins.find(other)
    found = [await desk.logins.find(cookie) is not None for cookie in cookies]
    assert found == [False] * LOGINS_PER_KEY * 2 + [True] * LOGINS_PER_KEY


async def test_the_login_that_is_unused_for_the_longest_time_ends_first() -> None:
    desk = Desk()
    cookies = [await desk.logins.log_in("guest", RIGHT, HERE) for _ in range(LOGINS_PER_KEY)]
    desk.clock.now_s += 1
    assert await desk.logins.find(cookies[0])
    await desk.logins.log_in("guest", RIGHT, HERE)
    assert await desk.logins.find(cookies[0])
    assert await desk.logins.find(cookies[1]) is None


async def test_many_keys_together_hold_a_bounded_number_of_connections() -> None:
    desk = Desk()
    for number in range(LOGINS_MAX + 7):
        await desk.logins.log_in(f"key-{number}", RIGHT, HERE)
    assert desk.connections == LOGINS_MAX


async def test_a_login_that_is_not_used_gives_its_connection_back_without_a_request() -> None:
    desk = Desk()
    first = await desk.logins.log_in("operator", RIGHT, HERE)
    desk.clock.now_s += IDLE_S
    second = await desk.logins.log_in("reader", RIGHT, HERE)
    await desk.logins.sweep()
    assert desk.connections == 2
    desk.clock.now_s += 1
    await desk.logins.sweep()
    assert desk.connections == 1
    assert await desk.logins.find(first) is None
    assert await desk.logins.find(second)


@pytest.mark.slow
def test_a_console_ends_unused_logins_by_itself(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def connections() -> int:
        (reader,) = (key for key in site.client.access_keys.list().access_keys if key.name == "reader")
        return reader.connections

    monkeypatch.setattr(app, "SWEEP_S", 0.01)
    clock, before = Seconds(), connections()
    with console(site.broker.endpoint, clock) as url:
        Browser(url).log_in("reader", f"{SECRET}-of-the-reader")
        assert connections() == before + 1
        clock.now_s += IDLE_S + 1
        while connections() > before:
            time.sleep(0.01)


@pytest.mark.slow
def test_an_open_page_leads_to_the_login_when_its_login_has_not_been_used(site: Site) -> None:
    clock = Seconds()
    with console(site.broker.endpoint, clock, every_s=0.01) as url:
        browser = Browser(url)
        browser.log_in("operator", SECRET)
        with browser.follow("/topics?q=a") as events:
            assert next(events)[0] == "live"
            clock.now_s += IDLE_S + 1
            assert [event for event in events if event[0]][-1] == ("login", "/login?to=/topics%3Fq%3Da&ended")
            assert browser.get("/topics").path.startswith("/login")


@pytest.mark.slow
def test_an_open_page_leads_to_the_login_at_the_end_of_a_login_that_is_used(site: Site) -> None:
    clock = Seconds()
    with console(site.broker.endpoint, clock, every_s=0.01) as url:
        browser = Browser(url)
        browser.log_in("operator", SECRET)
        with browser.follow("/keys") as events:
            assert next(events)[0] == "live"
            for _ in range(int(LIFE_S / IDLE_S)):
                clock.now_s += IDLE_S
                assert browser.get("/keys").path == "/keys"
            clock.now_s += 1
            assert [name for name, _ in events if name][-1] == "login"
            assert browser.get("/keys").path.startswith("/login")


@pytest.mark.slow
def test_a_page_that_updates_itself_does_not_prolong_the_login(site: Site) -> None:
    clock = Seconds()
    with console(site.broker.endpoint, clock, every_s=0.01) as url:
        browser = Browser(url)
        browser.log_in("operator", SECRET)
        clock.now_s += IDLE_S
        with browser.follow("/keys") as events:
            assert next(events)[0] == "live"
        clock.now_s += 1
        with browser.follow("/keys") as events:
            assert list(events) == [("login", "/login?to=/keys&ended")]


@pytest.mark.slow
def test_a_logout_leads_the_other_open_pages_to_the_login(site: Site) -> None:
    with console(site.broker.endpoint, every_s=0.01) as url:
        browser = Browser(url)
        browser.log_in("operator", SECRET)
        with browser.follow("/keys") as events:
            assert next(events)[0] == "live"
            browser.get("/topics")
            browser.post("/logout")
            assert [name for name, _ in events if name][-1] == "login"


def test_a_key_with_many_open_pages_leaves_room_for_those_of_another(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "STREAMS_PER_KEY", 2)
    with console(site.broker.endpoint, every_s=0.01) as url, ExitStack() as pages:
        first, second, other = Browser(url), Browser(url), Browser(url)
        for browser, name in ((first, "operator"), (second, "operator"), (other, "reader")):
            browser.log_in(name, SECRET if name == "operator" else f"{SECRET}-of-the-reader")
        for browser in (first, second):
            assert next(pages.enter_context(browser.follow("/topics")))[0] == "live"
        assert [opened(browser) for browser in (first, second)] == [503, 503]
        assert next(pages.enter_context(other.follow("/topics")))[0] == "live"
        pages.close()
        while opened(first) == 503:
            time.sleep(0.01)


def opened(browser: Browser) -> int:
    """The status of an open page, which this closes at once."""
    connection = http.client.HTTPConnection(browser.netloc, timeout=30)
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in browser.cookies.items())
    connection.request("GET", "/topics", headers={"Accept": "text/event-stream", "Cookie": cookies})
    status = connection.getresponse().status
    connection.close()
    return status
