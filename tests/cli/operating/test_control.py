"""`popmq topic …` and `popmq group …`."""

import shlex
from datetime import datetime

import pytest

import popmq
from popmq.testing import Broker
from tests.cli.conftest import Cli, Done


def test_a_topic_lives_from_create_to_delete(run: Cli, broker: Broker) -> None:
    made = run("topic", "create", "logs", "--queues", "3", "--keep", "1h30m", "--by-age", "--json")
    assert made.code == 0
    assert made.objects[0]["retention"] == {"keep": 5400.0, "by_age": True, "max_bytes": 0}
    assert run("topic", "update", "logs", "--queues", "4").err == "topic logs: 4 queues, 1h 30m by age\n"
    assert [(each["name"], each["queues"]) for each in run("topic", "list", "--json").objects] == [("logs", 4)]
    assert run("topic", "delete", "logs", "--yes").code == 0
    assert run("topic", "list", "--json").objects == []


def test_a_wrong_delay_of_a_backoff_names_its_option(run: Cli) -> None:
    done = run("group", "create", "readers", "--backoff", "1s, 2x")
    assert (done.code, "Invalid value for '--backoff': '2x' is not a duration" in done.err) == (2, True)


def test_a_group_whose_filter_is_refused_is_said_to_be_there_without_it(run: Cli, client: popmq.Client) -> None:
    done = run("group", "create", "readers", "--sql", "orders=amount >")
    assert (done.code, done.err.splitlines()[0]) == (1, "group readers was created, without the filter that is refused")
    assert client.groups.get("readers").name == "readers"


@pytest.mark.usefixtures("client")
def test_a_confirmation_counts_one_in_the_singular(run: Cli) -> None:
    assert run("topic", "create", "logs", "--queues", "1").err == "topic logs: 1 queue\n"
    assert run("group", "create", "readers", "--max-attempts", "1").err == "group readers: at most 1 attempt\n"


@pytest.mark.slow
def test_creating_what_exists_succeeds_only_with_the_same_settings(run: Cli, client: popmq.Client) -> None:
    assert run("topic", "create", "orders", "--queues", "2").code == 0
    other = run("topic", "create", "orders", "--queues", "5")
    assert (other.code, other.out) == (1, "")
    assert other.err.startswith("popmq: topic 'orders' exists")
    assert run("group", "create", "billing", "--max-attempts", "3").code == 0
    assert run("group", "create", "billing", "--max-attempts", "4").code == 1


@pytest.mark.promise("statistics")
@pytest.mark.slow
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


@pytest.mark.slow
def test_a_topic_and_a_group_are_closed_and_opened(run: Cli, client: popmq.Client) -> None:
    assert run("topic", "update", "orders", "--permission", "read_only").code == 0
    assert "permission  READ_ONLY" in run("topic", "describe", "orders").out
    sent = run("send", "orders", "x")
    assert sent.code == 1
    assert "popmq topic update orders --permission READ_WRITE" in sent.err
    assert run("topic", "update", "orders", "--queues", "5").code == 0
    assert client.topics.get("orders").permission == "READ_ONLY"
    assert run("topic", "create", "inbox", "--permission", "WRITE_ONLY").code == 0
    assert client.topics.get("inbox").permission == "WRITE_ONLY"
    assert run("group", "update", "billing", "--no-consume-enable").code == 0
    popped = run("pop", "orders", "billing")
    assert popped.code == 1
    assert "popmq group update billing --consume-enable" in popped.err
    assert run("group", "update", "billing", "--consume-enable").code == 0
    assert client.groups.get("billing").consume_enable


@pytest.mark.slow
def test_a_groups_expiry_and_its_last_reads_are_shown(run: Cli, client: popmq.Client) -> None:
    client.send("orders", "x")
    client.pop("orders", "billing", 1)
    assert run("group", "update", "billing", "--subscription-expiry", "30d").code == 0
    shown = run("group", "describe", "billing").out
    assert "expiry            30d without a read" in shown
    assert "TOPIC\tLAST READ\tEXPIRES\norders\t2" in shown
    assert run("group", "update", "billing", "--subscription-expiry", "0s").code == 0
    assert "expiry            never" in run("group", "describe", "billing").out


@pytest.mark.slow
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
    assert "backoff           10s, 1m" in run("group", "describe", "mail").out
    assert [each["name"] for each in run("group", "list", "--json").objects] == ["mail"]
    assert "mail\t6\t2m\t0\t" in run("group", "list").out
    assert run("group", "delete", "mail", "--yes").code == 0
    assert run("group", "describe", "mail").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "create", "mail", "--start", "someday"],
        ["group", "create", "mail", "--invisible", "soon"],
        ["group", "create", "mail", "--backoff", "10s,later"],
        ["group", "create", "mail", "--max-attempts", "0"],
        ["group", "create", "mail", "--in-flight-max", "0"],
        ["topic", "create"],
        ["topic", "shrink", "orders"],
        ["send", "orders", "x", "--property", "novalue"],
        ["pop", "orders", "billing", "--max", "0"],
        ["send", "mail", "x", "--deliver-at", "someday"],
        ["delayed", "--until", "soon"],
        ["recall", "mail"],
        ["transactions", "commit"],
        ["topic", "create", "x", "--type", "SQUARE"],
        ["topic", "create", "x", "--max-bytes", "10 GB"],
        ["group", "create", "x", "--filter", "orders"],
        ["group", "create", "x", "--filter", "orders=a", "--sql", "orders=TRUE"],
        ["offsets", "reset", "orders", "billing"],
        ["offsets", "reset", "orders", "billing", "--to", "latest", "--queue", "0=1"],
        ["offsets", "reset", "orders", "billing", "--queue", "zero"],
        ["mode", "orders", "billing", "push"],
        ["message", "orders"],
        ["message", "orders", "--id", "a", "--key", "b"],
    ],
)
def test_wrong_usage_differs_from_refusal(run: Cli, broker: Broker, arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert done.err.startswith("Usage: popmq")


@pytest.mark.capability("retention")
def test_lists_are_lines_in_a_pipe(run: Cli, client: popmq.Client) -> None:
    heading, row = run("topic", "list").out.splitlines()
    assert heading.split("\t") == ["NAME", "TYPE", "QUEUES", "RETENTION", "CREATED"]
    assert row.split("\t")[:4] == ["orders", "NORMAL", "2", "3d after all groups"]


def hint(done: Done) -> list[str]:
    """The words after `popmq` in the command line that an error tells a user to type."""
    return shlex.split(done.err.splitlines()[1].rpartition("popmq ")[2])


@pytest.mark.capability("filters")
@pytest.mark.slow
def test_the_hint_of_a_filter_conflict_replaces_the_filter(run: Cli, client: popmq.Client) -> None:
    client.send("orders", [popmq.Message("a", tag="eu"), popmq.Message("b", tag="it's")])
    client.pop("orders", "billing", tag="eu")
    for option, expression in (("--tag", "it's || us"), ("--sql", "region = 'eu' AND amount > 100")):
        refused = run("pop", "orders", "billing", option, expression)
        assert refused.code == 1
        assert run(*hint(refused)).code == 0
        assert run("pop", "orders", "billing", option, expression).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("pop", "fresh", "billing"),
        ("pop", "orders", "fresh"),
        ("pop", "-x", "billing"),
        ("peek", "%DLQ%mail", "billing"),
    ],
    ids=" ".join,
)
def test_the_hint_for_a_missing_topic_or_group_creates_it(
    run: Cli, client: popmq.Client, words: tuple[str, ...]
) -> None:
    words = ("--", *words) if "-x" in words else words
    command, *names = [word for word in words if word != "--"]
    refused = run(command, "--", *names)
    assert refused.code == 1
    assert run(*hint(refused)).code == 0
    assert run(command, "--", *names).code == 0


def test_a_misspelt_name_is_answered_with_a_similar_one(run: Cli, client: popmq.Client) -> None:
    client.schedules.create("report", "@daily", "orders", "x")
    for words, meant, hint in (
        (("pop", "ordres", "billing"), "orders", "popmq topic create ordres"),
        (("pop", "orders", "biling"), "billing", "popmq group create biling"),
        (("schedule", "show", "reports"), "report", "popmq schedule list"),
    ):
        refused = run(*words)
        assert refused.code == 1
        assert refused.err.splitlines()[1] == f"  → did you mean {meant}? Otherwise: {hint}"
    assert "did you mean" not in run("pop", "invoices", "billing").err


@pytest.mark.slow
def test_no_hint_creates_a_topic_that_only_the_broker_creates(run: Cli, client: popmq.Client) -> None:
    for name in ("TRANS_CHECK_MAX_TIME_TOPIC", "%RETRY%billing+orders"):
        refused = run("send", name, "x")
        assert refused.code == 1
        assert "popmq topic create" not in refused.err
    assert "popmq topic create" not in run("message", "TRANS_CHECK_MAX_TIME_TOPIC", "--id", "x").err


def test_an_existing_topic_or_group_names_the_settings_that_differ(run: Cli, client: popmq.Client) -> None:
    topic = run("topic", "create", "orders", "--queues", "7", "--type", "fifo")
    assert "exists with other settings: queues is 2, not 7, type is NORMAL, not FIFO" in topic.err
    group = run("group", "create", "billing", "--max-attempts", "5")
    assert "exists with other settings: max_attempts is 3, not 5\n" in group.err
    assert run(*hint(group)).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "delete", "orders"),
        ("topic", "purge", "orders"),
        ("group", "delete", "billing"),
        ("dlq", "redrive", "billing"),
        ("offsets", "reset", "orders", "billing", "--to", "latest"),
        ("owners", "release", "billing", "nightly"),
    ],
    ids=" ".join,
)
def test_destructive_commands_outside_a_terminal_need_yes(
    run: Cli, client: popmq.Client, words: tuple[str, ...]
) -> None:
    done = run(*words)
    assert done.code == 2
    assert "add --yes" in done.err
    assert [topic.name for topic in client.topics.list()] == ["orders"]


def test_a_topic_without_queues_is_refused(run: Cli, client: popmq.Client) -> None:
    for command in ("create", "update"):
        assert run("topic", command, "orders", "--queues", "0").code == 2
    for change in (client.topics.create, client.topics.update):
        with pytest.raises(popmq.errors.InvalidField, match="at least one queue"):
            change("orders", queues=0)
