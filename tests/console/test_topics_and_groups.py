"""The overview, topics and groups: what the pages show is what the broker says, and each action does it."""

import re
from typing import Any

import pytest

import popmq
from popmq import errors
from tests.console.conftest import Browser, Site

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(autouse=True, scope="module")
def filled(site: Site) -> None:
    """Two topics, a group that has done some of its work."""
    site.client.topics.create("orders", queues=2)
    site.client.topics.create("invoices", queues=3)
    site.client.groups.create("billing", max_attempts=3)
    site.client.send("orders", [f"order {number}" for number in range(5)])
    site.client.ack(site.client.pop("orders", "billing", max_messages=2))


@pytest.mark.slow
def test_the_overview_sums_up(operator: Browser) -> None:
    page = operator.get("/")
    assert "Backlog 3 " in page.plain
    assert "billing orders 3" in page.plain


def test_the_overview_counts_the_groups_that_the_list_shows(site: Site, operator: Browser) -> None:
    site.client.groups.create("unread")
    counted = len(site.client.groups.list())
    assert f"Groups {counted} " in operator.get("/").plain
    assert f"{counted} groups" in operator.get("/groups").plain


def test_the_list_of_topics_shows_numbers_and_finds_by_a_part_of_the_name(operator: Browser) -> None:
    assert "orders 5 " in operator.get("/topics?sort=-size").plain
    found = operator.get("/topics?q=INVO")
    assert "invoices" in found.plain
    assert "/topic?name=orders" not in found.text


def test_a_topic_is_created_changed_and_paused(site: Site, operator: Browser) -> None:
    done = operator.post("/topics/create", name="made", type="FIFO", queues="4", keep="5h")
    assert "The topic made has 4 queues." in done.plain
    made = site.client.topics.get("made")
    assert (made.type, made.queues, made.retention.keep) == ("FIFO", 4, 5 * 3600)
    operator.post("/topic/change", name="made", queues="4", keep="6h", send_messages_per_s="7")
    assert site.client.topics.get("made").quota.send_messages_per_s == 7
    assert "READ_ONLY" in operator.post("/topic/permit", name="made", permission="READ_ONLY").plain
    assert site.client.topics.get("made").permission == "READ_ONLY"


def shown_in(page: str) -> dict[str, Any]:
    """The fields of the forms of a page with their values, as a browser would send them."""
    return dict(re.findall(r'<input name="(\w+)"[^>]* value="([^"]*)"', page))


def test_settings_that_are_sent_as_the_page_shows_them_change_nothing(site: Site, operator: Browser) -> None:
    retention = popmq.Retention(keep=5400.25, max_bytes=(3 << 19) + 1)
    before = site.client.topics.create("exact", queues=1, retention=retention)
    fields = shown_in(operator.get("/topic?name=exact").text)
    assert (fields["keep"], fields["max_mib"]) == ("1h30m250ms", "1.50000095367431640625")
    assert operator.post("/topic/change", **{**fields, "name": "exact"}).status == 200
    assert site.client.topics.get("exact").retention == before.retention
    paced = site.client.groups.create("paced", invisible=1.75, backoff=[10, 90.5, 7200])
    fields = shown_in(operator.get("/group?name=paced").text)
    assert (fields["invisible"], fields["backoff"]) == ("1s750ms", "10s 1m30s500ms 2h")
    operator.post("/group/change", **{**fields, "name": "paced"})
    after = site.client.groups.get("paced")
    assert (after.invisible, list(after.backoff)) == (paced.invisible, list(paced.backoff))


def test_a_time_to_keep_messages_needs_its_unit(site: Site, operator: Browser) -> None:
    refused = operator.post("/topic/change", name="invoices", keep="72")
    assert (refused.status, "write 90s, 12h or 3d" in refused.plain) == (400, True)


def test_a_refusal_of_the_broker_is_shown_with_its_reason(operator: Browser) -> None:
    refused = operator.post("/topics/create", name="bad name!", type="NORMAL", back="/topics")
    assert refused.status == 400
    assert "'bad name!'" in refused.plain
    assert operator.get("/topic?name=nowhere").status == 404
    assert operator.post("/topics/create", name="x", type="NORMAL", queues="-1").status == 400


@pytest.mark.parametrize("text", ["9" * 17, "9" * 5000])
@pytest.mark.parametrize(
    ("action", "field"),
    [
        ("/topics/create", "queues"),
        ("/topics/create", "keep"),
        ("/topic/change", "max_mib"),
        ("/topic/change", "message_bytes"),
        ("/topic/change", "keep"),
        ("/groups/create", "max_attempts"),
        ("/group/change", "in_flight_max"),
        ("/group/change", "max_attempts"),
        ("/group/change", "backoff"),
        ("/group/change", "invisible"),
        ("/group/change", "results_keep"),
    ],
)
def test_a_number_that_no_setting_can_have_is_refused(operator: Browser, action: str, field: str, text: str) -> None:
    name = {"topics": "many", "topic": "invoices", "groups": "many", "group": "billing"}[action.split("/")[1]]
    form: dict[str, Any] = {"name": name, "type": "NORMAL", "start": "latest", field: text}
    assert operator.post(action, **form).status == 400


@pytest.mark.parametrize("action", ["purge", "delete"])
def test_a_topic_is_emptied_or_removed_only_with_its_name_typed(site: Site, operator: Browser, action: str) -> None:
    site.client.topics.create("doomed")
    site.client.send("doomed", "one")
    refused = operator.post(f"/topic/{action}", name="doomed", typed="domed")
    assert (refused.status, site.client.broker.stats("doomed").topics[0].messages) == (400, 1)
    operator.post(f"/topic/{action}", name="doomed", typed="doomed")
    if action == "purge":
        assert site.client.broker.stats("doomed").topics[0].messages == 0
    else:
        with pytest.raises(errors.TopicNotFound):
            site.client.topics.get("doomed")


@pytest.mark.slow
def test_a_group_is_created_changed_paused_and_deleted(site: Site, operator: Browser) -> None:
    operator.post("/groups/create", name="made", max_attempts="4", invisible="90s", start="latest")
    made = site.client.groups.get("made")
    assert (made.max_attempts, made.invisible, made.start) == (4, 90, "latest")
    operator.post("/group/change", name="made", max_attempts="5", backoff="1s, 2s", in_flight_max="9")
    made = site.client.groups.get("made")
    assert (made.max_attempts, list(made.backoff), made.in_flight_max) == (5, [1, 2], 9)
    assert "paused" in operator.post("/group/pause", name="made", paused="yes").plain
    assert not site.client.groups.get("made").consume_enable
    operator.post("/group/pause", name="made", paused="no")
    assert site.client.groups.get("made").consume_enable
    assert operator.post("/group/delete", name="made", typed="").status == 400
    operator.post("/group/delete", name="made", typed="made")
    assert "made" not in [group.name for group in site.client.groups.list()]


def test_a_group_that_keeps_results_shows_them(site: Site, operator: Browser) -> None:
    site.client.groups.create("adder")
    operator.post("/group/change", name="adder", results_keep="2h")
    assert site.client.groups.get("adder").results_keep == 7200.0
    page = operator.get("/group?name=adder")
    assert "Results kept" in page.plain
    rows = site.client.pop("orders", "adder", max_messages=32)
    site.client.ack(rows, results=[popmq.Result("A")] * len(rows))
    assert "%RESULT%adder" in operator.get("/topic?name=%25RESULT%25adder").plain
    operator.post("/group/change", name="adder", results_keep="0s")
    assert "Results kept" not in operator.get("/group?name=adder").plain


@pytest.mark.slow
def test_a_group_gets_another_filter_and_another_position(site: Site, operator: Browser) -> None:
    site.client.groups.create("moved")
    site.client.pop("orders", "moved", max_messages=1)
    assert (
        "moved has another filter" in operator.post("/group/filter", name="moved", topic="orders", tag="a || b").plain
    )
    assert "a || b" in operator.get("/group?name=moved").plain
    operator.post("/group/filter", name="moved", topic="orders")
    operator.post("/group/reset", name="moved", topic="orders", to="latest", typed="moved")
    assert site.client.pop("orders", "moved") == []
    operator.post("/group/reset", name="moved", topic="orders", to="time", at="2020-01-01", typed="moved")
    assert len(site.client.pop("orders", "moved", max_messages=10)) == 5
    assert operator.post("/group/reset", name="moved", topic="orders", to="time", at="?", typed="moved").status == 400


@pytest.mark.slow
def test_a_key_that_may_only_read_sees_its_rows_and_cannot_act(site: Site, reader: Browser) -> None:
    listed = reader.get("/topics")
    assert "orders" in listed.plain
    assert "invoices" not in listed.plain
    forms: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/topics/create", {"name": "mine", "type": "NORMAL"}),
        ("/topic/purge", {"name": "orders", "typed": "orders"}),
        ("/group/pause", {"name": "billing", "paused": "yes"}),
    )
    for path, form in forms:
        refused = reader.post(path, **form)
        assert refused.status == 403
        assert "Not allowed" in refused.plain
    assert site.client.broker.stats("orders").topics[0].messages == 5


def test_input_of_a_user_is_shown_as_text_and_not_as_html(site: Site, operator: Browser) -> None:
    answer = operator.get("/topics?q=%3Cscript%3Ealert(1)%3C/script%3E")
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;" in answer.text


@pytest.mark.slow
def test_an_open_page_gets_the_numbers_as_they_change(site: Site, operator: Browser) -> None:
    with operator.follow("/topic?name=invoices") as events:
        name, shown = next(events)
        assert name == "live"
        site.client.send("invoices", ["x"] * 7)
        while "<dt>Messages</dt><dd>7</dd>" not in shown:
            _, shown = next(events)
