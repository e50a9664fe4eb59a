"""`popmq topic …` and `popmq group …`."""

from datetime import datetime

import pytest

import popmq
from popmq.testing import Broker
from tests.cli.conftest import Cli


def test_a_topic_lives_from_create_to_delete(run: Cli, broker: Broker) -> None:
    made = run("topic", "create", "logs", "--queues", "3", "--keep", "1h30m", "--by-age", "--json")
    assert made.code == 0
    assert made.objects[0]["retention"] == {"keep": 5400.0, "by_age": True, "max_bytes": 0}
    assert run("topic", "update", "logs", "--queues", "4").err == "topic logs: 4 queues, 1h 30m by age\n"
    assert [(each["name"], each["queues"]) for each in run("topic", "list", "--json").objects] == [("logs", 4)]
    assert run("topic", "delete", "logs").code == 0
    assert run("topic", "list", "--json").objects == []


def test_creating_what_exists_succeeds_only_with_the_same_settings(run: Cli, client: popmq.Client) -> None:
    assert run("topic", "create", "orders", "--queues", "2").code == 0
    other = run("topic", "create", "orders", "--queues", "5")
    assert (other.code, other.out) == (1, "")
    assert other.err.startswith("popmq: topic 'orders' exists")
    assert run("group", "create", "billing", "--max-attempts", "3").code == 0
    assert run("group", "create", "billing", "--max-attempts", "4").code == 1


def test_describe_shows_queues_and_readers(run: Cli, client: popmq.Client) -> None:
    client.send("orders", [b"x", b"y"])
    client.pop("orders", "billing", 1)
    (shown,) = run("topic", "describe", "orders", "--json").objects
    assert shown["topic"]["name"] == "orders"
    assert [queue["max_offset"] for queue in shown["stats"]["queues"]] == [2, 0]
    assert [(group["group"], group["in_flight"]) for group in shown["groups"]] == [("billing", 1)]
    text = run("topic", "describe", "orders").out
    assert "groups      billing" in text
    assert "QUEUE\tFIRST\tNEXT\n0\t0\t2\n1\t0\t0\n" in text


def test_a_topic_and_a_group_are_closed_and_opened(run: Cli, client: popmq.Client) -> None:
    assert run("topic", "update", "orders", "--permission", "read_only").code == 0
    assert "permission  READ_ONLY" in run("topic", "describe", "orders").out
    sent = run("send", "orders", "x")
    assert sent.code == 1
    assert "popmq topic update orders --permission READ_WRITE" in sent.err
    assert run("topic", "update", "orders", "--queues", "5").code == 0
    assert client.get_topic("orders").permission == "READ_ONLY"
    assert run("topic", "create", "inbox", "--permission", "WRITE_ONLY").code == 0
    assert client.get_topic("inbox").permission == "WRITE_ONLY"
    assert run("group", "update", "billing", "--no-consume-enable").code == 0
    popped = run("pop", "orders", "billing")
    assert popped.code == 1
    assert "popmq group update billing --consume-enable" in popped.err
    assert run("group", "update", "billing", "--consume-enable").code == 0
    assert client.get_group("billing").consume_enable


def test_a_groups_expiry_and_its_last_reads_are_shown(run: Cli, client: popmq.Client) -> None:
    client.send("orders", "x")
    client.pop("orders", "billing", 1)
    assert run("group", "update", "billing", "--subscription-expiry", "30d").code == 0
    shown = run("group", "describe", "billing").out
    assert "expiry           30d without a read" in shown
    assert "TOPIC\tLAST READ\tEXPIRES\norders\t2" in shown
    assert run("group", "update", "billing", "--subscription-expiry", "0s").code == 0
    assert "expiry           never" in run("group", "describe", "billing").out


def test_a_group_lives_from_create_to_delete(run: Cli, broker: Broker) -> None:
    settings = [
        "--max-attempts",
        "5",
        "--backoff",
        "10s, 1m",
        "--invisible",
        "2m",
        "--start",
        "2026-01-31T12:00:00+00:00",
    ]
    made = run("group", "create", "mail", *settings, "--json").objects[0]
    assert (made["max_attempts"], made["backoff"], made["invisible"]) == (5, [10.0, 60.0], 120.0)
    assert datetime.fromisoformat(made["start"]) == datetime.fromisoformat("2026-01-31T12:00:00+00:00")
    assert run("group", "update", "mail", "--max-attempts", "6").code == 0
    (shown,) = run("group", "describe", "mail", "--json").objects
    assert (shown["group"]["max_attempts"], shown["group"]["backoff"], shown["stats"]) == (6, [10.0, 60.0], [])
    assert "backoff          10s, 1m" in run("group", "describe", "mail").out
    assert [each["name"] for each in run("group", "list", "--json").objects] == ["mail"]
    assert "mail\t6\t2m\t0\t" in run("group", "list").out
    assert run("group", "delete", "mail", "--yes").code == 0
    assert run("group", "describe", "mail").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "create", "mail", "--start", "yesterday"],
        ["group", "create", "mail", "--invisible", "soon"],
        ["group", "create", "mail", "--backoff", "10s,later"],
        ["topic", "create"],
        ["topic", "shrink", "orders"],
        ["send", "orders", "x", "--property", "novalue"],
        ["pop", "orders", "billing", "--max", "0"],
    ],
)
def test_wrong_usage_is_told_from_refusal(run: Cli, broker: Broker, arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert done.err.startswith("Usage: popmq")


def test_lists_are_lines_in_a_pipe(run: Cli, client: popmq.Client) -> None:
    heading, row = run("topic", "list").out.splitlines()
    assert heading.split("\t") == ["NAME", "TYPE", "QUEUES", "RETENTION", "CREATED"]
    assert row.split("\t")[:4] == ["orders", "NORMAL", "2", "3d after all groups"]
