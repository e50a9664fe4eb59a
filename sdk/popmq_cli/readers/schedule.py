"""`popmq schedule …`: what the broker sends at the times of a cron expression."""

from __future__ import annotations

import sys
import time
from typing import Any, get_args

import click

import popmq
from popmq.schedule import Missed
from popmq_cli.readers.schedule_files import export_, import_
from popmq_cli.shared.asking import asks, pair, sure
from popmq_cli.shared.completing import schedules, topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, Row, counted, seconds

COLUMNS = ["NAME", "CRON", "ZONE", "TOPIC", "NEXT", "IN#", "SENT#", "SKIPPED#", "FAILED#"]


@click.group()
def schedule() -> None:
    """Make the broker send messages at the times of a cron expression.

    It sends one message for each time, also across restarts and when the clocks change. The id of a message is
    NAME@TIME, and it has the properties popmq_schedule and popmq_scheduled_for.
    """


@schedule.command()
@click.argument("name")
@click.option("--cron", required=True, metavar="EXPRESSION", help='Five fields: "0 9 * * 1-5"; or @hourly, @daily …')
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="Its time zone, such as Europe/Berlin.")
@click.option("--topic", required=True, shell_complete=topics, help="Where the message goes.")
@click.option("--body", help="The message; without it: standard input.")
@click.option("--key", default="", help="For look-ups.")
@click.option("--tag", default="", help="One word, for filters.")
@click.option("--message-group", default="", help="FIFO topics: the messages of one group keep their order.")
@click.option("--lite-topic", default="", help="LITE topics: the lite topic.")
@click.option("--priority", type=click.IntRange(0), default=0, help="PRIORITY topics: higher first.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option(
    "--missed",
    type=click.Choice(get_args(Missed)),
    default="once",
    show_default=True,
    help="Which messages to send for times over a minute late: none, the latest, or the last 100.",
)
@asks
def create(
    client: popmq.Client,
    output: Output,
    name: str,
    cron: str,
    tz: str,
    topic: str,
    body: str | None,
    missed: Missed,
    properties: tuple[str, ...],
    **fields: Any,
) -> None:
    """Create a schedule. If it exists with the same settings the command succeeds, so scripts may run twice.

    \b
    Examples:
      popmq schedule create report --cron "0 9 * * 1-5" --tz Europe/Berlin --topic jobs --body '{"report": "daily"}'
      popmq schedule create tidy --cron @hourly --topic jobs --body tidy --missed skip
    """
    content = sys.stdin.buffer.read() if body is None else body.encode()
    message = popmq.Message(content, properties=dict(pair(text) for text in properties), **fields)
    made = client.schedules.create(name, cron, topic, message, tz=tz, missed=missed)
    output.done(f"schedule {name}: next at {moment(made.next_ms)}", made)


@schedule.command("list")
@asks
def list_(client: popmq.Client, output: Output) -> None:
    """Show all schedules, by name.

    \b
    Examples:
      popmq schedule list
      popmq schedule list --json | jq -r .name
    """
    output.listing("Schedules", COLUMNS, client.schedules.list(), _row)


@schedule.command()
@click.argument("name", shell_complete=schedules)
@click.option(
    "--next", "upcoming", type=click.IntRange(0, 100), default=5, show_default=True, help="Occurrences at most."
)
@asks
def show(client: popmq.Client, output: Output, name: str, upcoming: int) -> None:
    """Show one schedule with its message and its next times.

    \b
    Examples:
      popmq schedule show report --next 10
    """
    found = client.schedules.get(name, upcoming)
    if output.as_json:
        output.objects([found])
        return
    output.fields(
        f"Schedule {name}",
        {
            "cron": f"{found.cron} ({found.tz})",
            "topic": found.topic,
            "state": "paused" if found.paused else "active",
            "missed": found.missed,
            "last": moment(found.last_ms),
            "sent": found.sent,
            "skipped": found.skipped,
            "failed": f"{found.failed}: {found.error}" if found.failed else 0,
            "body": counted(len(found.message.body), "byte"),
        },
    )
    output.table("Next", ["TIME", "IN#"], [(moment(at_ms), _left(at_ms)) for at_ms in found.upcoming_ms])


@schedule.command()
@click.argument("name", shell_complete=schedules)
@asks
def pause(client: popmq.Client, output: Output, name: str) -> None:
    """Pause a schedule: its times are skipped until it is resumed.

    \b
    Examples:
      popmq schedule pause report
    """
    output.done(f"schedule {name} is paused", client.schedules.pause(name))


@schedule.command()
@click.argument("name", shell_complete=schedules)
@asks
def resume(client: popmq.Client, output: Output, name: str) -> None:
    """Resume a schedule. Its next message is sent at its next time.

    \b
    Examples:
      popmq schedule resume report
    """
    found = client.schedules.resume(name)
    output.done(f"schedule {name}: next at {moment(found.next_ms)}", found)


@schedule.command()
@click.argument("name", shell_complete=schedules)
@asks
def run(client: popmq.Client, output: Output, name: str) -> None:
    """Send the message of a schedule now, in addition to its times.

    \b
    Examples:
      popmq schedule run report
    """
    message_id = client.schedules.run(name)
    output.done(f"message {message_id} is sent", {"message_id": message_id})


@schedule.command()
@click.argument("name", shell_complete=schedules)
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def delete(client: popmq.Client, output: Output, name: str, yes: bool) -> None:
    """Delete a schedule. Messages that it has sent stay.

    \b
    Examples:
      popmq schedule delete report --yes
    """
    client.schedules.get(name)
    sure(f"Delete schedule {name}?", yes)
    client.schedules.delete(name)
    output.note(f"schedule {name} is deleted")


schedule.add_command(export_)
schedule.add_command(import_)


def _row(found: popmq.Schedule) -> Row:
    return (
        found.name,
        found.cron,
        found.tz,
        found.topic,
        "paused" if found.paused else moment(found.next_ms),
        _left(found.next_ms) if found.next_ms else "",
        found.sent,
        found.skipped,
        found.failed,
    )


def _left(at_ms: int) -> str:
    left = at_ms / 1000 - time.time()
    return seconds(left) if left > 0 else "due"
