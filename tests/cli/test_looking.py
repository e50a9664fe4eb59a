"""`popmq stats`, `history`, `browse`, `dlq`, `leases`, `owners`: looking without touching."""

import json

import pytest

import popmq
from popmq.testing import FakeClock
from popmq_cli.readers import history
from tests.cli.conftest import Cli


@pytest.mark.promise("statistics")
@pytest.mark.slow
def test_stats_show_what_groups_have_to_do(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b", "c"])
    client.pop("orders", "billing", 1)
    (numbers,) = run("stats", "--json").objects
    (group,) = numbers["groups"]
    assert (group["group"], group["ready"], group["in_flight"]) == ("billing", 2, 1)
    assert numbers["store"]["used_bytes"] > 0
    lines = run("stats", "--group", "billing").out.splitlines()
    assert lines[0].split("\t")[:5] == ["GROUP", "TOPIC", "READY", "IN FLIGHT", "RETRY"]
    assert lines[1].split("\t")[:5] == ["billing", "orders", "2", "1", "0"]
    assert run("stats", "orders", "billing").out.splitlines()[1].split("\t")[:5] == lines[1].split("\t")[:5]
    assert run("stats", "orders", "--topic", "orders").code == 2


@pytest.mark.promise("statistics")
def test_stats_of_a_group_that_has_not_read_the_topic_are_zeros(run: Cli, client: popmq.Client) -> None:
    client.groups.create("audit")
    assert run("stats", "orders", "audit").out.splitlines()[1].split("\t")[:8] == ["audit", "orders", *"000000"]


def test_stats_watch_shows_the_numbers_repeatedly(run: Cli, client: popmq.Client) -> None:
    shown = run("stats", "--watch", "--every", "1ms", "--times", "3", "--json")
    assert len(shown.objects) == 3


def test_a_result_is_shown_waited_for_and_forgotten(run: Cli, client: popmq.Client) -> None:
    assert run("group", "update", "billing", "--results-keep", "1h").code == 0
    assert "kept 1h" in run("group", "describe", "billing").out
    client.send("orders", [popmq.Message(each, message_id=each) for each in ("good", "bad")])
    for delivery in client.pop("orders", "billing"):
        if delivery.text() == "good":
            client.ack(delivery, results=popmq.Result({"sum": 3}))
        else:
            client.reject(delivery, "no stock")
    shown = run("result", "billing", "good", "bad", "--wait", "1s").out
    assert "good · application/json" in shown
    assert '{"sum":3}' in shown
    assert "bad · failed after 1 attempt" in shown
    assert "no stock" in shown
    (row,) = run("result", "billing", "bad", "--json").objects
    assert (row["message_id"], row["failed"], row["reason"], row["body"]) == ("bad", True, "no stock", "")
    why = run("why", "good").out
    assert "its result, stored" in why
    assert "9 bytes application/json" in why
    assert "its result, stored" in run("why", "bad").out
    run("result", "billing", "good", "--forget")
    missing = run("result", "billing", "good")
    assert (missing.code, "no result of billing: good" in missing.err) == (1, True)
    assert "its result" not in run("why", "good").out


@pytest.mark.slow
def test_dead_letters_show_where_they_came_from_and_why(run: Cli, client: popmq.Client) -> None:
    client.send("orders", popmq.Message("bad", key="AA1"))
    (delivery,) = client.pop("orders", "billing")
    client.reject(delivery, "ValueError: not JSON\n  line two")
    assert run("dlq", "list", "--json").objects == [{"group": "billing", "dead": 1}]
    assert run("dlq", "list").out == "GROUP\tDEAD\nbilling\t1\n"
    (letter,) = run("dlq", "show", "billing", "--json").objects
    assert (letter["body"], letter["dead_letter"]["topic"], letter["dead_letter"]["attempts"]) == ("bad", "orders", 1)
    text = run("dlq", "show", "billing").out
    assert "key AA1" in text
    assert "reason   ValueError: not JSON\n             line two\n" in text
    assert "body     bad" in text


def test_dead_letters_are_listed_by_reason_and_discarded_by_it(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b", "c"])
    for delivery in client.pop("orders", "billing"):
        client.reject(delivery, "timeout" if delivery.text() == "c" else "ValueError: 7\n  a line of a traceback")
    rows = run("dlq", "list", "--by", "reason", "--json").objects
    assert [(row["group"], row["messages"], row["reason"]) for row in rows] == [
        ("billing", 2, "ValueError: 7"),
        ("billing", 1, "timeout"),
    ]
    assert run("dlq", "list", "--by", "reason").out.splitlines()[0].split("\t")[0] == "GROUP"
    (counted,) = run("dlq", "list", "--by", "exception", "--json").objects[:1]
    assert (counted["exception"], counted["messages"], counted["reasons"]) == ("ValueError", 2, 1)
    assert "EXCEPTION" in run("dlq", "list", "--by", "exception").out.splitlines()[0]
    assert run("dlq", "discard", "billing", "--exception", "KeyError", "--yes").err == "0 discarded\n"
    assert run("dlq", "discard", "billing", "--reason", "ValueError: 7", "--yes").err == "2 discarded\n"
    assert run("dlq", "discard", "billing", "--offset", "99").code != 0
    assert run("dlq", "discard", "billing", "--yes").err == "1 discarded\n"
    assert run("dlq", "list", "--json").objects == []


@pytest.mark.slow
def test_many_dead_letters_are_shown_page_by_page(run: Cli, client: popmq.Client) -> None:
    client.send("orders", [b"%d" % number for number in range(5)])
    client.reject(client.pop("orders", "billing"))
    page = run("dlq", "show", "billing", "--max", "2")
    assert page.err == "3 more: popmq dlq show billing --offset 2\n"
    assert len(run("dlq", "show", "billing", "--offset", "2", "--json").objects) == 3


def test_a_group_without_dead_letters_differs_from_one_that_is_not_there(run: Cli, client: popmq.Client) -> None:
    none = run("dlq", "show", "billing")
    assert (none.code, none.out, none.err) == (0, "", "no dead letters of billing\n")
    assert run("dlq", "show", "nobody").code == 1


def test_leases_are_shown_each_with_its_client_and_deadline(
    run: Cli, client: popmq.Client, popmq_clock: FakeClock
) -> None:
    client.send("orders", ["a", "b"])
    first, _ = client.pop("orders", "billing", invisible=30.0)
    client.ack(first)
    (lease,) = run("leases", "list", "--json").objects
    assert (lease["client_id"], lease["undone"], lease["messages"]) == (client.client_id, 1, 2)
    assert lease["due_ms"] == popmq_clock.now_ms() + 30_000
    row = run("leases", "list", "--group", "billing").out.splitlines()[1].split("\t")
    assert row[:5] == ["billing", "orders", "normal", client.client_id, "1/2"]


def test_more_leases_than_shown_are_counted(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b", "c"])
    for _ in range(3):
        client.pop("orders", "billing", 1)
    assert run("leases", "list", "--max", "1").err == "2 more: raise --max\n"


def test_an_owner_is_listed_and_released(run: Cli, client: popmq.Client) -> None:
    client.send("orders", ["a", "b"])
    owner = client.owners.attach("billing", "nightly", topic="orders")
    client.owners.pop_sealed("orders", "billing", popmq.Token("nightly", owner.generation, 1))
    (shown,) = run("owners", "list", "--json").objects
    assert (shown["owner"], shown["generation"], shown["messages"]) == ("nightly", owner.generation, 2)
    assert run("owners", "list", "billing").out.splitlines()[1].startswith("billing\tnightly\t")
    assert run("owners", "release", "billing", "nightly", "--yes").err == "2 messages of nightly released\n"
    assert len(client.pop("orders", "billing")) == 2
    assert run("owners", "release", "billing", "nobody", "--yes").code == 1


def test_no_field_that_is_not_public_is_in_json(run: Cli, client: popmq.Client) -> None:
    client.send("orders", "x")
    client.reject(client.pop("orders", "billing"), "no")
    (letter,) = run("dlq", "show", "billing", "--json").objects
    assert [name for name in letter if name.startswith("_")] == []


def shown(out: str) -> list[str]:
    return [json.loads(line)["body"] for line in out.splitlines()]


def test_browse_shows_the_newest_messages_first(run: Cli, client: popmq.Client) -> None:
    for number in range(25):
        client.send("orders", str(number))
    assert shown(run("browse", "orders", "--newest", "--json").out) == [str(number) for number in range(24, 4, -1)]
    assert shown(run("browse", "orders", "--newest", "--max", "2", "--json").out) == ["24", "23"]


def test_browse_searches_all_queues_oldest_first_or_newest_first(run: Cli, client: popmq.Client) -> None:
    client.send("orders", popmq.Message("one", key="bob@example.com"))
    client.send("orders", "two")
    client.send("orders", popmq.Message("three", properties={"user": "bob@example.com"}))
    assert shown(run("browse", "orders", "--search", "bob@", "--json").out) == ["one", "three"]
    assert shown(run("browse", "orders", "--newest", "--search", "bob@", "--json").out) == ["three", "one"]
    assert run("browse", "orders", "--search", "nobody").err.endswith("no message in orders\n")


def test_browse_refuses_a_search_that_follows_or_filters(run: Cli) -> None:
    for option in (["--follow"], ["--tag", "eu"], ["--sql", "a = 1"]):
        assert run("browse", "orders", "--newest", *option).code == 2


def test_history_has_a_line_for_each_number_of_the_last_hour(
    run: Cli, client: popmq.Client, popmq_clock: FakeClock
) -> None:
    assert "no numbers yet: the broker takes them every 30 s" in run("history", "orders").err
    for count in (30, 60, 3):
        client.send("orders", ["a"] * count)
        popmq_clock.advance(30_000)
    lines = [line.split("\t") for line in run("history", "orders", "billing").out.splitlines()]
    assert lines[0] == ["NUMBER", "THE LAST HOUR", "LEAST", "MOST", "NOW"]
    assert lines[1] == ["SENT/S", " " * 58 + "▅█", "0.1", "2.0", "0.1"]
    assert [line[0] for line in lines] == ["NUMBER", *(number.name for number in history.NUMBERS)]
    assert "STORE" in run("history").out
    (answer,) = run("history", "orders", "--json").objects
    assert [point["sent_per_s"] for point in answer["points"]] == [1, 2, pytest.approx(0.1)]
    assert run("history", "--group", "nobody").code == 1
    assert run("history", "orders", "billing", "--group", "billing").code == 2


def test_a_minute_without_a_point_has_no_bar() -> None:
    assert history.bars([3590, 610, 5], [1, 8, 4]) == "▂" + " " * 48 + "█" + " " * 9 + "▅"
    assert history.bars([5], [0]) == " " * 59 + "▁"
