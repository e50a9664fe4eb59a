"""Several brokers in one console: a menu, a login for each, and pages that by themselves lead to no other broker."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import popmq
from harness.broker_process import own_port
from popmq_cli.commands import popmq as command_line
from popmq_console import serving
from popmq_console.app import NAMED
from popmq_console.options import BROKERS_MAX, BrokerInMenu, Options
from popmq_console.pages import NAVIGATION, PAGES
from popmq_server.embedded_broker import EmbeddedBroker
from tests.console.conftest import KEYS, SECRET, Browser, console

ADDRESS = re.compile(r'\b(?:href|action|formaction)="([^"]*)"')


def refers_to(page: str) -> list[str]:
    return [html.unescape(one) for one in ADDRESS.findall(page) if one.startswith("/") and "/static/" not in one]


#: What a page needs to show something.
QUERIES = {
    "/topic": "?name=orders",
    "/group": "?name=billing",
    "/schedule": "?name=nightly",
    "/messages": "?topic=orders",
    "/message": "?topic=orders&queue=0&offset=0",
    "/messages/why": "?id=m-1",
    "/dead-letters/group": "?group=billing",
    "/message-groups": "?group=billing&topic=steps",
}


def fill(client: popmq.Client) -> None:
    client.topics.create("orders", queues=1)
    client.topics.create("later", type="DELAY")
    client.topics.create("steps", type="FIFO", queues=1)
    client.topics.create("payments", type="TRANSACTION")
    client.groups.create("billing")
    client.send("orders", [popmq.Message("paid", message_id=f"m-{number}") for number in range(1, 4)])
    client.reject(client.pop("orders", "billing", max_messages=1), "broken")
    client.pop("orders", "billing", max_messages=1)
    client.send("later", popmq.Message("later", delay=3600))
    client.send("payments", popmq.Message("pay", transaction=True))
    client.send("steps", popmq.Message("step", message_group="cart"))
    client.pop("steps", "billing", max_messages=1)
    client.owners.attach("billing", "query-1", lease=600, topic="orders")
    client.schedules.create("nightly", "30 2 * * *", "orders", "report")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, popmq.Client]]:
    """The address of a console of the brokers guarded, open and away, and a client of open."""
    folder = tmp_path_factory.mktemp("brokers")
    keys = folder / "keys.toml"
    keys.touch(0o600)
    keys.write_text(KEYS)
    with (
        EmbeddedBroker(folder / "guarded", sync="none", access_keys=keys) as guarded,
        EmbeddedBroker(folder / "open", sync="none") as open_,
        popmq.Client(guarded.endpoint, access_key="operator", secret=SECRET) as operator,
        popmq.Client(open_.endpoint) as client,
    ):
        brokers = (
            BrokerInMenu("guarded", guarded.endpoint),
            BrokerInMenu("open", open_.endpoint),
            BrokerInMenu("away/from here", f"127.0.0.1:{own_port()}"),
        )
        operator.topics.create("orders")
        fill(client)
        with console(guarded.endpoint, every_s=0.05, brokers=brokers) as url:
            yield url, client


@pytest.fixture
def browser(both: tuple[str, popmq.Client]) -> Browser:
    """Logged in at guarded."""
    browser = Browser(both[0])
    browser.get("/at/guarded/login")
    assert browser.post("/at/guarded/login", name="operator", secret=SECRET, to="/").status == 200
    return browser


def test_an_address_without_a_broker_leads_to_the_first(both: tuple[str, popmq.Client]) -> None:
    _, headers, _ = Browser(both[0])._ask("GET", "/topics?q=a", "", {})
    assert headers["location"] == "/at/guarded/topics?q=a"
    _, headers, _ = Browser(both[0])._ask("GET", "/at/nobody/topics", "", {})
    assert headers["location"] == "/at/guarded/"


@pytest.mark.parametrize("path", [path for path in PAGES if path != "/brokers"])
def test_a_page_names_its_broker_and_only_the_menu_leads_to_others(browser: Browser, path: str) -> None:
    page = browser.get(f"/at/open{path}{QUERIES.get(path, '')}")
    assert page.status == 200
    assert re.search(r"<summary>.*<strong>open</strong>", page.text), path
    assert " · open · PopMQ</title>" in page.text
    menu = re.search(r'<details class="brokers">.*?</details>', page.text, re.DOTALL)
    assert menu is not None
    rest = page.text.replace(menu[0], "")
    assert [one for one in refers_to(rest) if not one.startswith("/at/open/")] == []
    assert len(refers_to(menu[0])) == 3


def test_a_switch_keeps_the_list_and_what_has_the_same_name(browser: Browser) -> None:
    def leads_to(path: str) -> str:
        page = browser.get(path)
        return next(one for one in refers_to(page.text) if one.startswith("/at/guarded/"))

    for path, _, _ in NAVIGATION:
        assert leads_to(f"/at/open{path}?page=2") == f"/at/guarded{path}"
    assert leads_to("/at/open/topic?name=orders") == "/at/guarded/topic?name=orders"
    assert leads_to("/at/open/message?topic=orders&queue=0&offset=0") == "/at/guarded/messages"
    assert set(NAMED) <= set(PAGES)


def test_each_broker_has_its_own_login(browser: Browser) -> None:
    assert browser.get("/at/guarded/topics").path == "/at/guarded/topics"
    assert sorted(browser.cookies) == ["popmq-console-guarded"]
    assert browser.get("/at/open/topics").status == 200
    stranger = Browser(f"http://{browser.netloc}/")
    assert stranger.get("/at/guarded/topics").path == "/at/guarded/login?to=/topics"
    assert stranger.get("/at/open/topics").path == "/at/open/topics"


def test_a_form_of_one_broker_changes_nothing_at_another(browser: Browser, both: tuple[str, popmq.Client]) -> None:
    of_guarded = browser.get("/at/guarded/topics").csrf
    browser.get("/at/open/topics")
    foreign = browser.post("/at/open/topics/create", csrf=of_guarded, name="smuggled", type="NORMAL")
    assert foreign.status == 403
    made = browser.post("/at/open/topics/create", csrf=browser.get("/at/open/topics").csrf, name="made", type="NORMAL")
    assert (made.path, "The topic made has" in made.plain) == ("/at/open/topic?name=made", True)
    assert {"made", "smuggled"} & {topic.name for topic in both[1].topics.list()} == {"made"}


def test_a_broker_that_is_away_says_so_and_the_others_are_usable(browser: Browser) -> None:
    page = browser.get("/at/open/topics")
    (away,) = [one for one in refers_to(page.text) if re.match(r"/at/[0-9a-f]{16}/", one)]
    gone = browser.get(away)
    assert "The broker does not answer" in gone.plain
    assert "away/from here" in gone.plain
    assert [one for one in refers_to(gone.text) if one.startswith("/at/open/")], "the menu leads on"
    assert browser.get("/at/open/topics").status == 200


def test_an_open_page_of_one_broker_is_followed_there(browser: Browser) -> None:
    with browser.follow("/at/open/topics") as events:
        name, data = next(events)
    assert name == "live"
    assert 'href="/at/open/topic?name=orders"' in data


def test_an_open_page_whose_login_ends_leads_to_the_login_of_its_broker(browser: Browser) -> None:
    with browser.follow("/at/guarded/topics") as events:
        assert next(events)[0] == "live"
        browser.get("/at/guarded/topics")
        browser.post("/at/guarded/logout")
        assert ("login", "/at/guarded/login?to=/topics&ended") in list(events)


# ── What the command offers ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options with which consoles would be run. There are the contexts prod, staging and one with a certificate."""
    given: list[Options] = []
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(serving, "run", lambda options, *_: given.append(options))
    pem = tmp_path / "client.pem"
    pem.touch()
    for name, *more in (
        ("prod", "--tls", "--access-key", "ops", "--secret-file", "-"),
        ("staging",),
        ("with-certificate", "--client-cert", str(pem), "--client-key", str(pem)),
    ):
        run("context", "add", name, "--endpoint", f"{name}:8081", *more, typed=SECRET)
    return given


def run(*arguments: str, typed: str = "") -> Any:
    return CliRunner().invoke(command_line, arguments, input=typed)


def names(options: Options) -> list[str]:
    return [one.name for one in options.brokers]


@pytest.mark.parametrize(
    ("arguments", "offered"),
    [
        ((), ["prod", "staging"]),
        (("--context", "staging"), ["staging", "prod"]),
        (("--alone",), []),
        (("--endpoint", "mq:8081"), []),
        (("--endpoint", "mq:8081", "--also", "staging"), ["mq:8081", "staging"]),
        (("--public-url", "https://console.example"), []),
        (("--public-url", "https://console.example", "--also", "staging"), ["prod", "staging"]),
    ],
)
def test_all_contexts_are_offered_only_where_nobody_else_reaches_the_pages(
    started: list[Options], arguments: tuple[str, ...], offered: list[str]
) -> None:
    assert run("console", *arguments).exit_code == 0
    assert names(started[0]) == offered


def test_the_secrets_of_contexts_are_not_among_the_options(started: list[Options]) -> None:
    done = run("console")
    assert "context with-certificate is not in the menu" in done.stderr
    assert SECRET not in repr(started[0])
    assert "ops" not in repr(started[0])
    assert started[0].name == "prod"
    assert [one.tls for one in started[0].brokers] == [True, False]


def test_a_context_that_cannot_be_offered_is_refused_when_it_is_named(started: list[Options]) -> None:
    assert run("console", "--also", "with-certificate").exit_code == 2
    assert run("console", "--also", "nobody").exit_code == 2
    assert run("console", "--also", "staging", "--alone").exit_code == 2
    assert started == []


def test_a_menu_is_bounded(started: list[Options]) -> None:
    for number in range(BROKERS_MAX):
        run("context", "add", f"z{number:02}", "--endpoint", "z:1")
    assert f"at most {BROKERS_MAX} brokers" in run("console").stderr
    assert len(started[0].brokers) == BROKERS_MAX


def test_the_console_of_a_broker_shows_only_itself(started: list[Options]) -> None:
    """`popmq serve --console-port` starts it with --endpoint, whatever contexts its user has."""
    assert run("console", "--until-stdin-ends", "--endpoint", "127.0.0.1:8081").exit_code == 0
    assert started[0].brokers == ()
