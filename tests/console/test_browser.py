"""The console in Debian's Chromium: every page is opened and looks right, every action is done by clicking.

`make console-test` runs it. Screenshots of all pages, at all WIDTHS, dark and light, go to build/console/.
"""

from collections.abc import Iterator

import pytest

import popmq
from harness.broker_process import own_port
from popmq import errors
from popmq_console import app
from popmq_console.options import BrokerInMenu
from popmq_console.pages import PAGES as ROUTES
from tests.console.chromium import LONG_NAME, WIDE, Chromium, a_window, complaints
from tests.console.conftest import SECRET, Site, console

pytest.importorskip("selenium")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

#: What a page is asked for, by its path: each is opened. A page that is not named here is opened as it is.
ASKED = {
    "/topic": ("name=orders",),
    "/topics": ("", "sort=-messages"),
    "/group": ("name=packing",),
    "/messages": ("topic=orders", f"topic={LONG_NAME}", "topic=orders&live=1", "topic=orders&q=order", ""),
    "/message": ("topic=orders&queue=0&offset=0", "topic=%25DLQ%25packing&queue=0&offset=20"),
    "/message/new": ("topic=orders", ""),
    "/messages/why": ("id=m-1", ""),
    "/dead-letters/group": ("group=packing", "group=packing&reason=nothing"),
    "/message-groups": ("", "group=careful&topic=steps"),
    "/delayed": ("", "topic=later"),
    "/half": ("", "topic=payments"),
    "/schedule": ("name=nightly",),
}


def name_of(path: str, number: int) -> str:
    """The name of a page's picture."""
    return (path.strip("/").replace("/", "-") or "overview") + (f"-{number}" if number else "")


#: Pages that only a gateway has: test_gateway_browser.py.
OF_CLUSTERS = ("/brokers",)
#: By the names of their pictures: every page that has a route.
PAGES = {
    name_of(path, number): f"{path}?{query}" if query else path
    for path in ROUTES
    if path not in OF_CLUSTERS
    for number, query in enumerate(ASKED.get(path, ("",)))
}
WIDTHS = (1920, 1280, 1000, 931, 768, 360)
#: Of leases, which a slow machine must not see the end of.
HOURS_S = 12 * 3600
#: On how many lines the text of an element is.
LINES = (
    "const text = document.createRange(); text.selectNodeContents(arguments[0]); return text.getClientRects().length"
)


@pytest.fixture(scope="module")
def chromium(site: Site) -> Iterator[Chromium]:
    fill(site.client)
    with a_window(site.url) as window:
        window.looks(WIDE, "light")
        window.open("/topics")
        window.shoot("login")
        window.send("/login", name="operator", secret=SECRET)
        window.until("Topics")
        yield window


def fill(client: popmq.Client) -> None:
    """Something on every page."""
    client.topics.create("orders", queues=2)
    client.topics.create("steps", type="FIFO", queues=1)
    client.topics.create("later", type="DELAY")
    client.topics.create("payments", type="TRANSACTION")
    for group in ("billing", "packing", "analytics", LONG_NAME[:60]):
        client.groups.create(group)
    client.groups.create("careful", max_attempts=1, stop_on_failure=True)
    client.send("orders", popmq.Message.json({"order": 1}, key="first", message_id="m-1"))
    client.send("orders", [popmq.Message.json({"order": number}) for number in range(2, 200)])
    client.reject(client.pop("orders", "packing", max_messages=20), "Traceback …\nValueError: nothing fits")
    client.reject(client.pop("orders", "packing", max_messages=1), "x" * 1500)
    client.topics.create(LONG_NAME, queues=1)
    client.send(LONG_NAME, popmq.Message("w" * 500, key="k" * 60, tag="t" * 60))
    client.reject(client.pop(LONG_NAME, "packing", max_messages=1), "nothing fits")
    client.pop("orders", "billing", max_messages=5, invisible=HOURS_S)
    client.pop("orders", LONG_NAME[:60], max_messages=5, invisible=HOURS_S)
    client.sessions.heartbeat("billing", ["orders"])
    client.sessions.heartbeat("analytics", ["orders"])
    client.owners.attach("analytics", "query-1", lease=HOURS_S, topic="orders")
    client.send("later", [popmq.Message(f"later {number}", delay=3600) for number in range(2)])
    client.send("payments", [popmq.Message(f"pay {number}", transaction=True) for number in range(2)])
    client.schedules.create("nightly", "30 2 * * *", "orders", '{"kind": "report"}', tz="Europe/Berlin")
    client.schedules.create("weekly", "0 9 * * 1", "orders", "summary")
    client.schedules.pause("weekly")
    client.send("steps", [popmq.Message(f"step {number}", message_group="cart") for number in range(3)])
    client.release(client.pop("steps", "careful", max_messages=1), reason="broken")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_its_window_and_runs_without_a_complaint(
    site: Site, chromium: Chromium, width: int, theme: str
) -> None:
    site.client.sessions.heartbeat("billing", ["orders"])  # clients are listed for some minutes
    site.client.pop("orders", "analytics", max_messages=1, invisible=HOURS_S)
    assert complaints(chromium, PAGES, width, theme) == ([], [], [])


def test_sessions_are_shown_and_leases_name_their_client_on_one_line(site: Site, chromium: Chromium) -> None:
    for group in ("billing", "analytics"):  # sessions end by themselves
        site.client.sessions.heartbeat(group, ["orders"])
    chromium.open("/sessions")
    rows = [row for row in chromium.driver.find_elements(By.CSS_SELECTOR, "tbody tr") if "session" in row.text]
    assert sorted(row.find_element(By.TAG_NAME, "a").text for row in rows) == ["analytics", "billing"]
    assert all(site.client.client_id in row.text for row in rows)
    chromium.open("/leases")
    code = chromium.find("tbody td code")
    assert code.text == code.get_attribute("title") == site.client.client_id
    assert chromium.driver.execute_script(LINES, code) == 1, "the client's id is broken over lines"
    cut = chromium.driver.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", code)
    assert not cut, "the client's id is cut off"


def test_an_open_page_follows_the_numbers_and_keeps_what_was_typed(site: Site, chromium: Chromium) -> None:
    chromium.open("/topics")
    search = chromium.find('input[name="q"]')
    search.send_keys("half a wo")
    site.client.topics.create("appears-by-itself")
    chromium.until("appears-by-itself")
    assert chromium.find("html").get_attribute("data-current") == "yes"
    assert search.get_property("value") == "half a wo"
    assert chromium.driver.switch_to.active_element == search


def test_the_focus_stays_on_the_link_of_a_row_that_moves(site: Site, chromium: Chromium) -> None:
    for name in ("moves-a", "moves-b"):
        site.client.topics.create(name)
    site.client.send("moves-a", "one")
    chromium.open("/topics?q=moves&sort=-messages")
    chromium.driver.execute_script("document.querySelectorAll('tbody td:first-child a')[1].focus()")
    site.client.send("moves-b", ["one", "two"])
    shown = "return [...document.querySelectorAll('tbody td:first-child a')].map(one => one.textContent).join()"
    WebDriverWait(chromium.driver, 20).until(lambda _: chromium.driver.execute_script(shown) == "moves-b,moves-a")
    assert chromium.driver.switch_to.active_element.text == "moves-b"


def test_typed_text_comes_back_after_a_refusal_and_only_then(chromium: Chromium) -> None:
    chromium.open("/schedules")
    chromium.unfold("New schedule")
    chromium.send(
        "/schedules/create", name="kept", topic="orders", cron="never", body="a long body", missed="none of them"
    )
    chromium.until("Not done")
    chromium.driver.find_element(By.LINK_TEXT, "Back").click()
    chromium.until("New schedule")
    form = chromium.find('form[action="/schedules/create"]')
    typed = [form.find_element(By.NAME, name).get_property("value") for name in ("name", "body", "missed")]
    assert typed == ["kept", "a long body", "skip"]
    assert form.is_displayed()
    chromium.open("/schedules")
    assert chromium.find('form[action="/schedules/create"] [name="body"]').get_property("value") == ""


def test_an_open_page_is_followed_again_after_an_answer_that_was_no_stream(
    chromium: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "STREAMS_MAX", 0)
    chromium.open("/topics")
    WebDriverWait(chromium.driver, 20).until(lambda _: chromium.find("#state").text == "Connection lost; trying again.")
    monkeypatch.undo()
    WebDriverWait(chromium.driver, 20).until(lambda _: chromium.find("html").get_attribute("data-current") == "yes")
    assert chromium.find("#state").text == ""


def test_a_topic_is_made_changed_paused_purged_and_deleted(site: Site, chromium: Chromium) -> None:
    chromium.open("/topics")
    chromium.unfold("New topic")
    chromium.send("/topics/create", name="clicked", type="FIFO", queues="3")
    chromium.until("The topic clicked has 3 queues.")
    chromium.unfold("Settings")
    chromium.send("/topic/change", keep="5h")
    chromium.until("The settings of clicked are changed.")
    chromium.unfold("Pause")
    chromium.send("/topic/permit", permission="READ_ONLY")
    chromium.until("clicked is READ_ONLY now.")
    assert (site.client.topics.get("clicked").retention.keep, site.client.topics.get("clicked").queues) == (18000, 3)
    chromium.unfold("Purge or delete")
    button = chromium.find('form[action="/topic/purge"] button')
    assert not button.is_enabled()
    chromium.send("/topic/purge", typed="clicked")
    chromium.until("0 messages of clicked are dropped.")
    chromium.unfold("Purge or delete")
    chromium.send("/topic/delete", typed="clicked")
    chromium.until("The topic clicked is deleted.")


def test_a_group_is_made_changed_paused_reset_and_deleted(site: Site, chromium: Chromium) -> None:
    chromium.open("/groups")
    chromium.unfold("New group")
    chromium.send("/groups/create", name="pressed", max_attempts="4")
    chromium.until("The group pressed is there.")
    chromium.unfold("Settings")
    chromium.send("/group/change", max_attempts="5")
    chromium.until("The settings of pressed are changed.")
    chromium.unfold("Pause")
    chromium.send("/group/pause")
    chromium.until("pressed is paused")
    chromium.unfold("Go on")
    chromium.send("/group/pause")
    chromium.until("pressed is reading again.")
    site.client.pop("orders", "pressed", max_messages=1)
    chromium.open("/group?name=pressed")
    chromium.unfold("Filter")
    chromium.send("/group/filter", tag="a || b")
    chromium.until("pressed has another filter")
    chromium.unfold("Reset")
    chromium.send("/group/reset", to="latest", typed="pressed")
    chromium.until("pressed reads orders from latest on.")
    chromium.unfold("Delete")
    chromium.send("/group/delete", typed="pressed")
    chromium.until("The group pressed is deleted.")
    with pytest.raises(errors.GroupNotFound):
        site.client.groups.get("pressed")


def test_a_schedule_is_created_paused_and_deleted_by_typing_its_name(site: Site, chromium: Chromium) -> None:
    chromium.open("/schedules")
    chromium.unfold("New schedule")
    chromium.send("/schedules/create", name="pressed", topic="orders", cron="@daily", body="x")
    chromium.until("The schedule pressed sends to orders.")
    chromium.send("/schedule/pause")
    chromium.until("pressed is paused")
    chromium.unfold("Delete")
    chromium.send("/schedule/delete", typed="pressed")
    chromium.until("The schedule pressed is deleted.")
    assert "pressed" not in [one.name for one in site.client.schedules.list()]


def test_dead_letters_are_ticked_and_delivered_again(chromium: Chromium) -> None:
    chromium.open("/dead-letters/group?group=packing")
    chromium.find('input[name="offset"]').click()
    chromium.find('button[form="redrive"]').click()
    chromium.until("Delivered again: 1 dead letter.")
    chromium.find('button[form="redrive-all"]').click()
    assert chromium.answer(yes=True) == "Deliver all 21 dead letters of packing again?"
    chromium.until("21 delivered again")
    chromium.driver.find_element(By.LINK_TEXT, "Show what is left").click()
    chromium.until("No dead letter is here.")
    chromium.until("0 dead letters in all.")


def test_delayed_half_leased_owned_and_stopped_messages_are_acted_on_in_the_browser(chromium: Chromium) -> None:
    for path, action, words in (
        ("/delayed", "/delayed/recall", "is recalled and will not be delivered."),
        ("/leases", "/leases/end", "will be delivered again."),
        ("/half", "/half/end", "The half message is committed."),
        ("/owners", "/owners/release", "query-1 is released"),
        ("/message-groups?group=careful&topic=steps", "/message-groups/resume", "cart goes on"),
    ):
        chromium.open(path)
        chromium.send(action)
        if path != "/message-groups?group=careful&topic=steps":  # another try asks for nothing
            chromium.answer(yes=True)
        chromium.until(words)


def test_a_message_is_recalled_only_after_the_question_that_names_it(site: Site, chromium: Chromium) -> None:
    receipt = site.client.send("later", popmq.Message("stays", message_id="m-stays", delay=60))
    chromium.open("/delayed")
    chromium.send("/delayed/recall")
    assert chromium.answer(yes=False) == "Recall m-stays? It will never be delivered."
    assert receipt.message_id in [one.message_id for one in site.client.messages.list_delayed("later").messages]
    assert chromium.driver.current_url.endswith("/delayed")


def test_the_keyboard_reaches_the_content_and_the_pages(chromium: Chromium) -> None:
    chromium.open("/")
    body = chromium.find("body")
    body.send_keys(Keys.TAB)
    assert chromium.driver.switch_to.active_element.text == "Skip to the content"
    chromium.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert chromium.driver.switch_to.active_element.get_attribute("id") == "content"
    links = chromium.driver.find_elements(By.CSS_SELECTOR, ".side a")
    links[1].send_keys(Keys.ENTER)
    chromium.until("Topics")


def test_the_menu_leads_to_the_same_page_of_another_broker_and_back_from_one_that_is_away(
    site: Site, chromium: Chromium
) -> None:
    brokers = (
        BrokerInMenu("prod", site.broker.endpoint),
        BrokerInMenu("staging-of-the-" + LONG_NAME, f"127.0.0.1:{own_port()}"),
    )
    with console(site.broker.endpoint, every_s=0.05, brokers=brokers) as url:
        window = Chromium(url, chromium.driver)
        window.open("/topics")
        window.shoot("login-of-a-broker")
        window.send("/at/prod/login", name="operator", secret=SECRET)
        window.until("New topic")
        assert chromium.driver.title == "Topics · prod · PopMQ"
        for width in WIDTHS:
            window.looks(width, "light")
            if not window.find(".brokers").get_attribute("open"):
                window.find(".brokers summary").click()
            window.shoot(f"brokers-{width}-light")
            assert not chromium.driver.execute_script("return document.documentElement.scrollWidth > innerWidth")
        window.looks(WIDE, "light")
        window.find('.brokers a[href$="/topics"]:not([aria-current])').click()
        window.until("The broker does not answer")
        window.shoot("broker-away")
        window.find(".brokers summary").click()
        window.find('.brokers a[href="/at/prod/topics"]').click()
        window.until("New topic")


def test_the_chosen_theme_stays_and_the_logout_ends_it(chromium: Chromium) -> None:
    chromium.open("/topics")
    chromium.find("#theme option:nth-child(3)").click()
    WebDriverWait(chromium.driver, 20).until(lambda _: chromium.find("html").get_attribute("data-theme") == "dark")
    assert chromium.driver.current_url.endswith("/topics")
    chromium.driver.find_element(By.XPATH, "//button[text()='Log out']").click()
    chromium.until("Log in")
    chromium.open("/topics")
    chromium.until("Log in")


def test_an_open_page_goes_to_the_login_when_its_login_ends_elsewhere(chromium: Chromium, site: Site) -> None:
    chromium.open("/login")
    chromium.send("/login", name="operator", secret=SECRET)
    chromium.until("Messages a second")
    chromium.open("/topics")
    other = site.browser()
    other.cookies["popmq-console"] = chromium.driver.get_cookie("popmq-console")["value"]
    other.get("/topics")
    other.post("/logout")
    chromium.until("Log in")
    assert chromium.driver.current_url.endswith("/login?to=/topics&ended")
