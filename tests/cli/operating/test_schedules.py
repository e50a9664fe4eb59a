"""`popmq schedule …`."""

from pathlib import Path

import pytest

import popmq
from tests.cli.conftest import Cli


def test_a_schedule_is_made_shown_run_and_deleted(run: Cli, client: popmq.Client) -> None:
    client.topics.create("chores")
    made = run(
        *("schedule", "create", "report", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--topic", "chores"),
        *("--body", "go", "--tag", "red", "--property", "a=b", "--missed", "all"),
    )
    assert made.err.startswith("schedule report: next at 20")
    assert run("schedule", "create", "piped", "--cron", "@daily", "--topic", "chores", stdin=b"from a pipe").code == 0
    heading, piped, report = run("schedule", "list").out.splitlines()
    assert heading.split("\t")[:4] == ["NAME", "CRON", "ZONE", "TOPIC"]
    assert (piped.split("\t")[0], report.split("\t")[:4]) == (
        "piped",
        ["report", "0 9 * * 1-5", "Europe/Berlin", "chores"],
    )
    shown = run("schedule", "show", "report", "--next", "2").out
    assert "0 9 * * 1-5 (Europe/Berlin)" in shown
    assert shown.count("T08:00:00Z") + shown.count("T07:00:00Z") == 2, "nine o'clock in Berlin"
    (found,) = run("schedule", "show", "report", "--json").objects
    assert (found["missed"], found["message"]["tag"], len(found["upcoming_ms"])) == ("all", "red", 5)
    assert "paused" in run("schedule", "pause", "report").err
    assert "report@" in run("schedule", "run", "report").err
    assert "next at" in run("schedule", "resume", "report").err
    refused = run("schedule", "delete", "report")
    assert refused.code == 2, "outside a terminal it does not ask"
    assert run("schedule", "delete", "report", "--yes").code == 0
    assert [row.name for row in client.schedules.list()] == ["piped"]
    (delivery,) = client.pop("chores", "billing")
    assert (delivery.text(), delivery.tag, delivery.properties["a"]) == ("go", "red", "b")


def test_a_wrong_expression_is_reported_with_what_to_write(run: Cli, client: popmq.Client) -> None:
    client.topics.create("chores")
    wrong = run("schedule", "create", "s", "--cron", "nine", "--topic", "chores", "--body", "x")
    assert wrong.code != 0
    assert "five: minute, hour" in wrong.err


def test_schedules_are_exported_and_imported_as_they_were(run: Cli, client: popmq.Client, tmp_path: Path) -> None:
    client.topics.create("chores")
    rich = popmq.Message(b"\xff\x00", key="k", tag="red", properties={"a": "b"}, more_keys=["l"])
    client.schedules.create("report", "0 9 * * 1-5", "chores", rich, tz="Europe/Berlin", missed="all")
    client.schedules.create("tidy", "@daily", "chores", "an – text")
    before = [client.schedules.pause("tidy"), client.schedules.get("report")]
    file = tmp_path / "schedules.jsonl"
    assert run("schedule", "export", str(file)).err == "2 schedules exported\n"
    for name in ("report", "tidy"):
        client.schedules.delete(name)
    for _ in range(2):  # what is there stays
        assert run("schedule", "import", str(file)).err == "2 schedules imported\n"
    kept = ("cron", "tz", "topic", "missed", "paused", "message")
    for was in before:
        now = client.schedules.get(was.name)
        assert [getattr(now, name) for name in kept] == [getattr(was, name) for name in kept]


@pytest.mark.slow
def test_a_line_that_is_no_schedule_is_named_and_those_before_it_are_made(run: Cli, client: popmq.Client) -> None:
    client.topics.create("chores")
    good = b'{"name":"a","cron":"@daily","topic":"chores","message":{"body":"x"}}\n'
    for bad, why in (
        (b'{"name":"b"}', "'cron' is missing"),
        (b'["b"]', "it is not a JSON object"),
        (good.replace(b'"x"', b"7"), "it has no body"),
        (b'{"name":"b","crown":1}', "no field 'crown' is known"),
    ):
        refused = run("schedule", "import", "-", stdin=good + bad)
        assert (refused.code, f"line 2 is not a schedule: {why}" in refused.err) == (2, True), refused.err
    nowhere = run("schedule", "import", "-", stdin=good.replace(b"chores", b"nowhere").replace(b'"a"', b'"b"'))
    assert (nowhere.code, "line 1: schedule 'b': there is no topic" in nowhere.err) == (1, True), nowhere.err
    assert [row.name for row in client.schedules.list()] == ["a"]
