"""Who gets in, what a browser is given, and what a form from elsewhere can do: nothing."""

import http.client
import re

import pytest

from popmq_console.app import Console
from popmq_console.guards import BODY_BYTES_MAX
from popmq_console.options import OptionError, Options
from popmq_console.pages import ACTIONS, PAGES
from tests.console.conftest import SECRET, Browser, Site, console


@pytest.mark.slow
def test_a_stranger_sees_the_login_and_nothing_else(site: Site) -> None:
    for path in PAGES:
        answer = site.browser().get(path)
        assert (answer.status, answer.path.split("?")[0]) == (200, "/login")
        assert "Log out" not in answer.text


def test_a_wrong_secret_is_refused_with_a_sentence(site: Site) -> None:
    answer = site.browser().log_in("operator", "something-else")
    assert answer.status == 401
    assert "no such access key, or its secret is wrong" in answer.plain


def test_the_login_leads_to_the_page_that_was_asked_for_and_nowhere_else(site: Site) -> None:
    browser = site.browser()
    assert 'name="to" value="/topics?q=a"' in browser.get("/topics?q=a").text
    assert 'name="to" value="/"' in browser.get("/login?to=//evil.example").text
    assert 'name="to" value="/"' in browser.get("/login?to=https://evil.example").text


def test_the_cookie_is_new_with_the_login_and_holds_nothing_of_the_key(site: Site) -> None:
    browser = site.browser()
    browser.get("/login")
    before = browser.cookies["popmq-console"].value
    browser.log_in("operator", SECRET)
    after = browser.cookies["popmq-console"]
    assert after.value != before
    assert "operator" not in after.value
    assert (after["httponly"], after["samesite"], after["path"]) == (True, "strict", "/")


@pytest.mark.slow
def test_the_cookie_travels_only_by_https_with_tls(site: Site) -> None:
    with console(site.broker.endpoint, public_url="https://console.example") as url:
        browser = Browser(url)
        answer = browser.get("/login", Host="console.example")
        assert "__Host-popmq-console=" in answer.headers["set-cookie"]
        assert "Secure" in answer.headers["set-cookie"]
        assert answer.headers["strict-transport-security"]


def test_the_cookie_is_worthless_after_the_logout(site: Site) -> None:
    browser = site.browser()
    browser.log_in("operator", SECRET)
    browser.get("/topics")
    token, cookie = browser.csrf, browser.cookies["popmq-console"].value
    browser.post("/logout")
    browser.cookies["popmq-console"] = cookie
    assert browser.get("/topics").path.startswith("/login")
    assert browser.post("/topics/create", csrf=token, name="x", type="NORMAL").path.startswith("/login")


def test_a_form_of_a_login_that_has_ended_says_that_nothing_was_done(site: Site) -> None:
    browser = site.browser()
    assert "Your login has ended" not in browser.get("/topics").plain
    browser.log_in("operator", SECRET)
    browser.get("/topics?q=a")
    token, cookie = browser.csrf, browser.cookies["popmq-console"].value
    browser.post("/logout")
    browser.cookies["popmq-console"] = cookie
    asked = browser.post("/topics/create", csrf=token, name="x", type="NORMAL", back="/topics?q=a")
    assert "Your login has ended. If you pressed a button, nothing was done." in asked.plain
    assert browser.post("/login", name="operator", secret=SECRET, to="/topics?q=a").path == "/topics?q=a"
    assert 'name="to" value="/topics?q=a"' in asked.text


def test_a_key_without_admin_is_offered_nothing_that_needs_it(site: Site, operator: Browser, reader: Browser) -> None:
    site.client.topics.create("orders")
    site.client.groups.create("packing")
    site.client.send("orders", "one")
    site.client.reject(site.client.pop("orders", "packing"), "no room")

    def offered(browser: Browser) -> set[str]:
        pages = ["/topics", "/topic?name=orders", "/groups", "/group?name=packing", "/schedules"]
        pages.append("/dead-letters/group?group=packing")
        shown = "".join(browser.get(path).text for path in pages)
        return set(re.findall(r'method="post" action="([^"]+)"', shown))

    needing = {action for action in ACTIONS if action.startswith(("/topic", "/group", "/schedules", "/dead-letters"))}
    needing -= {"/group/filter", "/dead-letters/stop"}
    assert needing <= offered(operator)
    assert offered(reader) & needing == set()
    assert "changes that need it are not offered" in reader.get("/topics").plain


@pytest.mark.parametrize("path", [*ACTIONS, "/logout", "/theme", "/login"])
def test_no_form_works_without_its_token(operator: Browser, path: str) -> None:
    operator.get("/topics")
    for token in ("", "0" * 64):
        assert operator.post(path, csrf=token, name="orders", typed="orders").status == 403


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_a_form_of_another_site_is_refused_even_with_the_token(operator: Browser, headers: dict[str, str]) -> None:
    operator.get("/topics")
    assert operator.post("/topics/create", headers=headers, name="stolen", type="NORMAL").status == 403


def test_a_form_that_is_too_large_is_refused(operator: Browser) -> None:
    operator.get("/topics")
    assert operator.post("/topics/create", name="x" * BODY_BYTES_MAX).status == 413


@pytest.mark.parametrize("path", [*PAGES, "/login", "/static/console.js", "/nowhere"])
def test_every_answer_forbids_foreign_scripts_and_frames(operator: Browser, path: str) -> None:
    headers = operator.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"


def test_another_name_for_this_machine_is_not_served(site: Site) -> None:
    connection = http.client.HTTPConnection(site.browser().netloc, timeout=10)
    connection.request("GET", "/login", headers={"Host": "evil.example"})
    assert connection.getresponse().status == 421
    connection.close()


@pytest.mark.slow
def test_many_failed_attempts_make_the_login_wait(site: Site) -> None:
    with console(site.broker.endpoint) as url:
        browser = Browser(url)
        answers = [browser.log_in("operator", "wrong-secret").status for _ in range(21)]
    assert answers == [401] * 20 + [429]


def test_secrets_in_clear_over_a_network_need_a_word_of_the_operator() -> None:
    with pytest.raises(OptionError, match="secrets would travel in clear"):
        Console(Options("127.0.0.1:8081", hosts=("0.0.0.0",)))
    Console(Options("127.0.0.1:8081", hosts=("0.0.0.0",), public_url="https://console.example"))


@pytest.mark.slow
def test_no_page_and_no_cookie_holds_a_secret(operator: Browser, reader: Browser) -> None:
    for browser in (operator, reader):
        shown = [browser.get(path) for path in PAGES]
        assert sum(answer.status == 200 for answer in shown) > 5
        assert [answer.path for answer in shown if SECRET in answer.text + str(answer.headers)] == []
        assert SECRET not in str(browser.cookies)
