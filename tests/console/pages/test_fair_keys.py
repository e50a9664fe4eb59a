"""Turns by fair key in the console: the form of a group does what it says, and its page shows the keys that wait."""

import html
import re
from typing import Any

import pytest

import popmq
from tests.console.conftest import Browser, Site

pytestmark = pytest.mark.usefixtures("fresh")

FORM: dict[str, Any] = {"name": "renderer", "source": "property", "property": "tenant", "label_separator": "/"}


@pytest.fixture(autouse=True)
def group(site: Site) -> None:
    if "renderer" not in [one.name for one in site.client.groups.list()]:
        site.client.topics.create("renders")
        site.client.groups.create("renderer")
    site.client.groups.update("renderer", fair_keys=False)


def fair_keys(site: Site) -> popmq.FairKeys | None:
    return site.client.groups.get("renderer").fair_keys


def test_a_group_gets_turns_by_key_with_limits_and_exceptions_and_loses_them(site: Site, operator: Browser) -> None:
    limits: dict[str, Any] = {"in_flight_max": "20", "messages_per_s": "50", "exceptions": "acme=100,0\n\n a=b = 5\n"}
    assert "renderer takes turns by key." in operator.post("/group/fair-keys", **FORM, **limits).plain
    named = [popmq.FairKeyLimits("acme", 100, 0), popmq.FairKeyLimits("a=b ", 5, 0)]
    fair = fair_keys(site)
    assert fair is not None
    assert (fair.property, fair.message_key, fair.label_separator) == ("tenant", False, "/")
    assert (fair.in_flight_max, fair.messages_per_s, list(fair.exceptions)) == (20, 50, named)
    done = operator.post("/group/fair-keys", name="renderer", source="none", property="tenant")
    assert "renderer takes no turns by key." in done.plain
    assert fair_keys(site) is None


def test_the_form_shows_what_is_set_so_that_sending_it_changes_nothing(site: Site, operator: Browser) -> None:
    before = popmq.FairKeys(message_key=True, in_flight_max=7, exceptions=[popmq.FairKeyLimits("acme", 0, 9)])
    site.client.groups.update("renderer", fair_keys=before)
    form = operator.get("/group?name=renderer").text.partition("/group/fair-keys")[2].partition("</form>")[0]
    fields: dict[str, Any] = dict(re.findall(r'<input name="(\w+)"[^>]* value="([^"]*)"', form))
    fields |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>([^<]*)<', form))
    fields["source"] = re.findall(r'<option value="(\w+)" selected', form)[0]
    assert fields["exceptions"] == "acme=0,9"
    fields = {name: html.unescape(text) for name, text in fields.items()}
    operator.post("/group/fair-keys", name="renderer", **fields)
    after = fair_keys(site)
    assert after is not None
    assert (after.message_key, after.in_flight_max, list(after.exceptions)) == (True, 7, list(before.exceptions))


def test_the_page_of_a_group_shows_the_keys_that_wait(site: Site, operator: Browser) -> None:
    site.client.groups.update("renderer", fair_keys=popmq.FairKeys(property="tenant", in_flight_max=1))
    pages = [
        popmq.Message("page", properties={"tenant": tenant}) for tenant in ("acme", "acme", "acme", "bolt", "bolt")
    ]
    site.client.send("renders", pages)
    batch = site.client.pop("renders", "renderer", max_messages=10)
    assert len(batch) == 2
    page = operator.get("/group?name=renderer").plain
    assert "Keys that wait" in page
    assert "renders acme 2 1" in page
    assert "renders bolt 1 1" in page
    site.client.ack(batch)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"source": "weather"}, "none, key or property"),
        ({"property": ""}, "name the property"),
        ({"exceptions": "acme"}, "not like acme=100,0"),
        ({"exceptions": "acme=1,x"}, "not like acme=100,0"),
        ({"exceptions": "acme=²"}, "not like acme=100,0"),
        ({"exceptions": "acme=4294967296"}, "not like acme=100,0"),
        ({"in_flight_max": "many"}, "whole number"),
        ({"messages_per_s": "9999999"}, "messages_per_s"),
    ],
)
def test_what_is_no_setting_is_refused(site: Site, operator: Browser, change: dict[str, Any], why: str) -> None:
    refused = operator.post("/group/fair-keys", **FORM | change)
    assert (refused.status, why in refused.plain) == (400, True), refused.plain
    assert fair_keys(site) is None
