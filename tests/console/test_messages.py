"""Messages, dead letters and what waits: what the pages show, and what their forms do to the broker."""

import html
import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

import pytest

import popmq
from popmq import errors
from popmq_console.redrives import PIECE
from tests.console.conftest import Answer, Browser, Site

pytestmark = pytest.mark.usefixtures("fresh")

STACK = "Traceback (most recent call last):\n  in charge\nValueError: no card"


@pytest.fixture(autouse=True, scope="module")
def filled(site: Site) -> None:
    """Messages that are done, dead, delayed, half, stopped and owned."""
    client = site.client
    client.topics.create("orders", queues=2)
    client.topics.create("later", type="DELAY")
    client.topics.create("steps", type="FIFO", queues=1)
    for group in ("billing", "packing", "spark"):
        client.groups.create(group)
    client.groups.create("careful", max_attempts=1, stop_on_failure=True)
    client.send("orders", popmq.Message.json({"order": 1, "text": "<b>ü</b>"}, key="first", message_id="m-1"))
    client.send("orders", popmq.Message(b"\x00\xff binary", message_id="m-2", tag="raw"))
    client.ack(client.pop("orders", "billing", max_messages=1))


def dead(site: Site, count: int) -> None:
    """So many dead letters of packing, for two reasons."""
    site.client.send("orders", [f"bad {number}" for number in range(count)])
    while popped := site.client.pop("orders", "packing", max_messages=500):
        if others := [one for one in popped if not one.body.startswith(b"bad")]:
            site.client.ack(others)
        bad = [one for one in popped if one.body.startswith(b"bad")]
        site.client.reject(bad[::2], "no room")
        site.client.reject(bad[1::2], STACK)


def dead_now(site: Site) -> int:
    return max((row.dead for row in site.client.broker.stats(group="packing").groups), default=0)


def test_a_message_with_an_impossible_time_has_its_page(site: Site, operator: Browser) -> None:
    site.client.send("orders", popmq.Message("x", message_id="m-late", born_ms=2**62))
    found = operator.get("/messages?topic=orders&id=m-late").plain
    assert "m-late" in found
    (shown,) = site.client.messages.look_up("orders", "m-late").deliveries
    page = operator.get(f"/message?topic=orders&queue={shown.queue}&offset={shown.offset}")
    assert (page.status, f"{2**62} ms" in page.plain) == (200, True)


@pytest.mark.slow
def test_a_message_is_found_by_id_by_key_by_time_and_by_place(operator: Browser) -> None:
    assert "m-1" in operator.get("/messages?topic=orders&id=m-1").plain
    assert "m-1" in operator.get("/messages?topic=orders&key=first").plain
    assert "No message was found." in operator.get("/messages?topic=orders&key=nothing").plain
    since = operator.get("/messages?topic=orders&at=2020-01-01")
    assert ("m-1" in since.plain, "m-2" in since.plain) == (True, True)
    assert "No message was found." in operator.get("/messages?topic=orders&at=2090-01-01").plain
    places = [operator.get(f"/messages?topic=orders&queue={queue}&offset=0").plain for queue in (0, 1)]
    assert sum("m-1" in place for place in places) == 1
    assert operator.get("/messages?topic=orders&at=soon").status == 400
    assert "m-1" in operator.get("/messages?topic=orders&at=0001-01-01T00:00%2B14:00").plain


def test_a_time_with_an_offset_is_that_moment_and_one_without_is_in_utc(site: Site, operator: Browser) -> None:
    site.client.topics.create("timed", queues=1)
    site.client.send("timed", popmq.Message("x", message_id="m-timed"))
    (sent,) = site.client.messages.look_up("timed", "m-timed").deliveries
    stored = datetime.fromtimestamp(sent.stored_ms / 1000, UTC)
    east = timezone(timedelta(hours=8))

    def found(at: datetime) -> bool:
        return "m-timed" in operator.get(f"/messages?{urlencode({'topic': 'timed', 'at': at.isoformat()})}").plain

    assert [found(stored.astimezone(east)), found(stored.replace(tzinfo=None))] == [True, True]
    late = stored + timedelta(seconds=1)
    assert [found(late.astimezone(east)), found(late.replace(tzinfo=None))] == [False, False]


def following(browser: Browser, page: Answer) -> Answer:
    link = re.search(r'rel="next" href="([^"]+)"', page.text)
    assert link
    return browser.get(html.unescape(link[1]))


def test_the_following_ones_of_a_batch_with_one_time_are_the_rest_of_it(site: Site, operator: Browser) -> None:
    site.client.topics.create("batched", queues=3)
    for queue_of in ("a", "b", "c"):
        site.client.send("batched", [popmq.Message("x", message_id=f"m-{queue_of}{number}") for number in range(60)])
    page, shown = operator.get("/messages?topic=batched&at=2020-01-01"), []
    while found := re.findall(r">(m-\w+)</a>", page.text):
        shown += found
        if 'rel="next"' not in page.text:
            break
        assert len(shown) <= 180, "a page shows the messages of the one before again"
        page = following(operator, page)
    assert sorted(shown) == sorted(f"m-{queue_of}{number}" for queue_of in "abc" for number in range(60))


def test_a_body_that_is_no_text_is_shown_in_hex(operator: Browser) -> None:
    page = operator.get(place_of(operator, "m-2"))
    assert "00000000  00 ff 20 62" in html.unescape(page.text)
    assert "Reason" not in page.plain


def test_a_body_that_is_cut_says_so(site: Site, operator: Browser) -> None:
    numbers = json.dumps([0] * 40_000)  # fewer than 100,000 characters until each one has a line of its own
    site.client.send("orders", popmq.Message(numbers.replace(" ", ""), message_id="m-grows"))
    site.client.send("orders", popmq.Message("ü" * 60_000, message_id="m-wide"))
    cut = [
        "The first 100,000 characters." in operator.get(place_of(operator, name)).plain
        for name in ("m-grows", "m-wide")
    ]
    assert cut == [True, False]
    site.client.ack(site.client.pop("orders", "billing", max_messages=100))


def test_a_long_reason_of_one_line_is_folded(site: Site, operator: Browser) -> None:
    site.client.groups.create("folding")
    site.client.reject(site.client.pop("orders", "folding", max_messages=1), "r" * 1500)
    page = operator.get("/dead-letters/group?group=folding").text
    assert f"<summary>{'r' * 200}</summary><pre>{'r' * 1500}</pre>" in page


def test_the_list_cuts_a_body_between_two_characters(site: Site, operator: Browser) -> None:
    site.client.topics.create("wide", queues=1)
    site.client.send("wide", "語" * 100)
    assert f">{'語' * 60}</code>" in operator.get("/messages?topic=wide").text


@pytest.mark.parametrize("path", ["/message", "/messages"])
def test_a_queue_that_no_topic_can_have_is_refused_with_a_sentence(operator: Browser, path: str) -> None:
    answer = operator.get(f"{path}?topic=orders&queue=99999999999&offset=0")
    assert (answer.status, "99999999999 is more than" in answer.plain) == (400, True)


def test_an_offset_that_no_number_can_hold_is_no_ticked_box(operator: Browser) -> None:
    refused = operator.post("/dead-letters/redrive", group="packing", offset="9" * 5000)
    assert (refused.status, "tick the dead letters" in refused.plain) == (400, True)


def test_json_with_half_a_surrogate_pair_is_shown_as_its_text(site: Site, operator: Browser) -> None:
    site.client.send("orders", popmq.Message(rb'"\ud800"', message_id="m-half"))
    page = operator.get(place_of(operator, "m-half"))
    assert (page.status, r'"\ud800"' in page.plain) == (200, True)
    site.client.ack(site.client.pop("orders", "billing", max_messages=100))


def place_of(browser: Browser, message_id: str) -> str:
    found = browser.get(f"/messages?topic=orders&id={message_id}")
    link = re.search(r'href="(/message\?[^"]+)"', found.text)
    assert link
    return link[1].replace("&amp;", "&")


@pytest.mark.slow
def test_a_message_is_shown_as_json_as_text_and_as_hex_and_never_as_html(operator: Browser) -> None:
    place = place_of(operator, "m-1")
    page = operator.get(place)
    assert "&lt;b&gt;ü&lt;/b&gt;" in page.text
    assert json.loads(page.plain[page.plain.index("{") : page.plain.index("}") + 1])["order"] == 1
    assert "00000000 7b 22" in operator.get(place + "&as=hex").plain
    assert "\ufffd binary" in operator.get(place_of(operator, "m-2") + "&as=text").plain


def test_why_is_a_time_line_for_each_group(operator: Browser) -> None:
    page = operator.get("/messages/why?id=m-1")
    assert page.text.count('<ol class="timeline">') >= 1
    assert "sent" in page.plain
    assert operator.get("/messages/why?id=unknown").status == 404


def test_dead_letters_show_reason_and_stack_and_are_filtered(site: Site, operator: Browser) -> None:
    dead(site, 6)
    count = dead_now(site)
    assert f"packing {count}" in operator.get("/dead-letters").plain
    page = operator.get("/dead-letters/group?group=packing")
    assert "ValueError: no card" in page.plain
    assert page.text.count('name="offset"') == min(count, 50)
    filtered = operator.get("/dead-letters/group?group=packing&reason=NO+CARD&origin=orders")
    assert filtered.text.count('name="offset"') == 3
    assert "no room" not in filtered.plain
    assert "is here" in operator.get("/dead-letters/group?group=packing&origin=other").plain


def test_ticked_dead_letters_are_delivered_again(site: Site, operator: Browser) -> None:
    dead(site, 4)
    before = dead_now(site)
    page = operator.get("/dead-letters/group?group=packing")
    offsets = re.findall(r'name="offset" value="(\d+)"', page.text)[:2]
    done = operator.post("/dead-letters/redrive", group="packing", offset=offsets)
    assert "Delivered again: 2 dead letters" in done.plain
    assert dead_now(site) == before - 2
    assert operator.post("/dead-letters/redrive", group="packing").status == 400


@pytest.mark.slow
def test_all_dead_letters_of_a_filter_are_redriven_and_the_page_shows_the_progress(
    site: Site, operator: Browser
) -> None:
    dead(site, PIECE + 100)
    before = dead_now(site)
    page = operator.post("/dead-letters/redrive-all", group="packing", reason="no card")
    assert "<progress" in page.text
    while "Delivering again" in page.plain:
        page = operator.get("/dead-letters/group?group=packing")
    left = dead_now(site)
    assert f"{before - left} delivered again" in page.plain
    assert 0 < left < before
    assert "ValueError" not in operator.get("/dead-letters/group?group=packing&reason=no+card").plain


def test_an_owner_is_shown_with_its_lag_and_released(site: Site, operator: Browser) -> None:
    attached = site.client.owners.attach("spark", "query-1", topic="orders", start="earliest")
    site.client.owners.pop_sealed("orders", "spark", sealed(attached))
    page = operator.get("/owners?group=spark")
    assert "query-1" in page.plain
    assert "query-1 is released" in operator.post("/owners/release", group="spark", owner="query-1").plain
    assert site.client.owners.list("spark")[0].released


def sealed(attached: popmq.Attachment) -> popmq.Token:
    return popmq.Token("query-1", attached.generation, attached.acked_epoch + 1)


def test_leases_and_sessions_show_client_messages_and_deadline(site: Site, operator: Browser) -> None:
    site.client.pop("orders", "billing", max_messages=1)
    page = operator.get("/leases?group=billing&topic=orders")
    assert site.client.client_id in page.plain
    assert "billing orders" in page.plain
    sessions = operator.get("/sessions?group=billing")
    assert site.client.client_id in sessions.plain
    assert "127.0.0.1 · operator" in sessions.plain
    assert "POP" in sessions.plain


def test_a_lease_is_released_and_its_messages_come_again(site: Site, operator: Browser) -> None:
    site.client.groups.create("gone")
    (popped,) = site.client.pop("orders", "gone", max_messages=1)
    page = operator.get("/leases?group=gone")
    place = re.search(r'name="lease_id" value="(\w+)"', page.text)
    assert place
    done = operator.post("/leases/end", group="gone", lease_id=place[1], back="/leases?group=gone")
    assert done.path == "/leases?group=gone"
    assert "1 message that it had not finished will be delivered again" in done.plain
    again: dict[str, int] = {}
    while popped.message_id not in again:  # beside those that it had not popped yet
        again = {one.message_id: one.attempt for one in site.client.pop("orders", "gone", max_messages=500, wait=5)}
        assert again
    assert again[popped.message_id] == 2
    assert operator.post("/leases/end", group="gone", lease_id=place[1]).status == 400


def test_keys_are_shown_with_their_rights(operator: Browser, reader: Browser) -> None:
    page = operator.get("/keys").plain
    assert re.search(r"operator you \* never 1 secret \d 0 B any 0", page)
    assert re.search(r"reader receive:orders never 1 secret \d of 9 0 B of 1.0 MiB 5,000 0", page)
    assert "operator" not in reader.get("/keys").plain


def test_a_delayed_message_is_recalled(site: Site, operator: Browser) -> None:
    site.client.send("later", popmq.Message("remind", delay=3600, message_id="d-1", key="k-1"))
    page = operator.get("/delayed?topic=later")
    assert "later k-1 remind" in page.plain
    handle = re.search(r'name="handle" value="([^"]+)"', page.text)
    assert handle
    assert "d-1 is recalled" in operator.post("/delayed/recall", topic="later", handle=handle[1]).plain
    assert site.client.messages.list_delayed("later").total == 0


def test_a_half_message_is_ended(site: Site, operator: Browser) -> None:
    site.client.topics.create("payments", type="TRANSACTION")
    receipt = site.client.send("payments", popmq.Message("x", transaction=True, message_id="h-1"))
    assert "h-1" in operator.get("/half").plain
    form: dict[str, Any] = {"topic": "payments", "transaction": receipt.transaction_id}
    assert operator.post("/half/end", resolution="perhaps", **form).status == 400
    assert "rolled back" in operator.post("/half/end", resolution="rollback", **form).plain
    assert site.client.transactions.list("payments").total == 0


def test_a_stopped_message_group_goes_on(site: Site, operator: Browser) -> None:
    site.client.send("steps", [popmq.Message(f"step {number}", message_group="a") for number in range(3)])
    (first,) = site.client.pop("steps", "careful", max_messages=1)
    site.client.release(first, reason="broken")
    assert "careful steps" in operator.get("/message-groups").plain
    page = operator.get("/message-groups?group=careful&topic=steps")
    assert "broken" in page.plain
    form: dict[str, Any] = {"group": "careful", "topic": "steps", "message_group": "a"}
    assert "a goes on" in operator.post("/message-groups/resume", how="again", **form).plain
    assert [one.text() for one in site.client.pop("steps", "careful", max_messages=1)] == ["step 0"]


@pytest.mark.slow
def test_a_key_that_may_only_read_cannot_deliver_again_or_release(site: Site, reader: Browser) -> None:
    assert reader.get("/messages?topic=orders&id=m-1").status == 200
    assert reader.get("/sessions").status == 403
    assert reader.get("/leases").status == 403
    before = dead_now(site)
    assert reader.post("/dead-letters/redrive", group="packing", offset="0").status == 403
    page = reader.post("/dead-letters/redrive-all", group="packing")
    while "Delivering again" in page.plain:
        page = reader.get("/dead-letters/group?group=packing")
    assert dead_now(site) == before
    with pytest.raises(errors.NotFound):
        site.client.topics.get("nothing-was-made")


def test_a_dead_letter_is_delivered_again_from_its_own_page(site: Site, operator: Browser) -> None:
    dead(site, 1)
    before = dead_now(site)
    page = operator.get("/dead-letters/group?group=packing")
    place = re.search(r'href="(/message\?[^"]+)"', page.text)
    assert place
    letter = operator.get(html.unescape(place[1]))
    offset = re.search(r'name="offset" value="(\d+)"', letter.text)
    assert offset
    done = operator.post("/dead-letters/redrive", group="packing", offset=offset[1])
    assert "Delivered again: 1 dead letter" in done.plain
    assert dead_now(site) == before - 1


def test_the_button_for_all_that_fit_says_how_many_they_are(site: Site, operator: Browser) -> None:
    dead(site, 130)
    every = operator.get("/dead-letters/group?group=packing").plain
    assert f"Deliver all {dead_now(site)} dead letters again" in every
    fitting = operator.get("/dead-letters/group?group=packing&reason=no+room")
    count = sum("no room" in one.dead_letter.reason for one in dead_letters(site))
    assert f"Deliver all that fit the filter ({count}) again" in fitting.plain
    assert fitting.text.count('name="offset"') == 50 < count


def dead_letters(site: Site) -> list[Any]:
    return list(site.client.messages.browse("%DLQ%packing", max_messages=1000).deliveries)


def test_dead_letters_are_counted_by_reason_and_those_of_one_are_discarded(site: Site, operator: Browser) -> None:
    dead(site, 6)
    counts = {one.reason: one.messages for one in site.client.dead_letters.reasons("packing")}
    page = operator.get("/dead-letters/group?group=packing")
    assert f"no room {counts['no room']} " in page.plain
    done = operator.post("/dead-letters/discard", group="packing", reason="no room")
    assert f"Discarded: {counts['no room']:,} dead letters" in done.plain
    assert "no room" not in {one.reason for one in site.client.dead_letters.reasons("packing")}


def test_dead_letters_of_one_exception_are_added_up_and_discarded(site: Site, operator: Browser) -> None:
    site.client.send("orders", [f"unpriced {number}" for number in range(3)])
    popped = [each for each in site.client.pop("orders", "packing", 64) if each.text().startswith("unpriced")]
    for delivery in popped:
        site.client.reject(delivery, f"KeyError: {delivery.text()!r}")
    assert len(popped) == 3
    page = operator.get("/dead-letters/group?group=packing")
    assert "By exception" in page.plain
    assert "KeyError 3 3 " in page.plain
    done = operator.post("/dead-letters/discard", group="packing", exception="KeyError")
    assert "Discarded: 3 dead letters" in done.plain
    assert "KeyError" not in {one.exception for one in site.client.dead_letters.reasons("packing")}


def test_ticked_dead_letters_are_discarded(site: Site, operator: Browser, reader: Browser) -> None:
    dead(site, 4)
    before = dead_now(site)
    offset = re.findall(r'name="offset" value="(\d+)"', operator.get("/dead-letters/group?group=packing").text)[0]
    assert reader.post("/dead-letters/discard", group="packing", offset=offset).status in (403, 404)
    assert "Discarded: 1 dead letter." in operator.post("/dead-letters/discard", group="packing", offset=offset).plain
    assert dead_now(site) == before - 1
    assert operator.post("/dead-letters/discard", group="packing").status == 400
