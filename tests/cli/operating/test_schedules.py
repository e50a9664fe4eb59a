"""`popmq schedule …`."""

import popmq
from tests.cli.conftest import Cli


def test_a_schedule_is_made_shown_run_and_deleted(run: Cli, client: popmq.Client) -> None:
    client.create_topic("chores")
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
    assert [row.name for row in client.list_schedules()] == ["piped"]
    (delivery,) = client.pop("chores", "billing")
    assert (delivery.text(), delivery.tag, delivery.properties["a"]) == ("go", "red", "b")


def test_a_wrong_expression_is_reported_with_what_to_write(run: Cli, client: popmq.Client) -> None:
    client.create_topic("chores")
    wrong = run("schedule", "create", "s", "--cron", "nine", "--topic", "chores", "--body", "x")
    assert wrong.code != 0
    assert "five: minute, hour" in wrong.err
