"""An error of the console itself: a page with the navigation, and an id that the log has too."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from popmq_console.pages import ACTIONS, PAGES
from tests.console.conftest import SECRET, Browser, Site, console


async def broken(_: Any) -> Any:
    raise LookupError("the defect")


async def unfinished(_: Any) -> Any:
    """The values of a page, one of which its template cannot show."""
    return {}


@pytest.fixture
def defective(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """A browser at a console with defects."""
    monkeypatch.setitem(PAGES, "/keys", (broken, "keys.html"))
    monkeypatch.setitem(PAGES, "/leases", (unfinished, "leases.html"))
    monkeypatch.setitem(ACTIONS, "/topics/create", broken)
    with console(site.broker.endpoint, every_s=0.01) as url:
        browser = Browser(url)
        browser.log_in("operator", SECRET)
        yield browser


def number_in(text: str) -> str:
    found = re.search(r"failed with error (\w{8})\.", text)
    assert found
    return found[1]


@pytest.mark.parametrize("path", ["/keys", "/leases"])
def test_a_page_with_a_defect_keeps_the_navigation_and_names_its_line_in_the_log(
    defective: Browser, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    answer = defective.get(path)
    assert answer.status == 500
    assert 'aria-label="Pages"' in answer.text
    assert "the defect" not in answer.text
    assert answer.headers["content-security-policy"]
    (logged,) = (record for record in caplog.records if number_in(answer.plain) in record.getMessage())
    assert path in logged.getMessage()
    assert logged.exc_info
    assert defective.get("/topics").status == 200


def test_an_action_with_a_defect_says_that_it_may_have_been_done(defective: Browser) -> None:
    defective.get("/topics")
    answer = defective.post("/topics/create", name="x", type="NORMAL")
    assert answer.status == 500
    assert number_in(answer.plain)
    assert "check whether it was done" in answer.plain


def test_an_open_page_with_a_defect_fails_once_and_not_every_two_seconds(
    defective: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    with defective.follow("/keys") as events:
        ((name, sentence),) = events
    assert name == "broken"
    assert [number_in(sentence) in record.getMessage() for record in caplog.records] == [True]


def test_a_form_with_too_many_fields_is_refused_without_a_login(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    browser = site.browser()
    browser.get("/login")
    assert browser.post("/login", field=["1"] * 5001).status == 400
    assert caplog.records == []
