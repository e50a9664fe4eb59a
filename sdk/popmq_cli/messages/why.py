"""`popmq why`: the history of a message as a time line, one block for each group.

message … in orders, queue 3 offset 17
  billing   acked     …a sentence
    2026-11-21 01:02:03.120           sent
    2026-11-21 01:02:10.002  +6.88s   popped    attempt 1 · worker-1 · until 01:03:10
"""

from __future__ import annotations

import click

import popmq
from popmq_cli.shared import visible
from popmq_cli.shared.asking import asks
from popmq_cli.shared.moments import exact
from popmq_cli.shared.output import Output, seconds

#: Green: done. Yellow: leased, or still to be delivered. Red: given up. States and events share the words.
COLOURS = {
    "ready": "yellow",
    "leased": "yellow",
    "backoff": "yellow",
    "retry": "yellow",
    "waiting": "yellow",
    "popped": "yellow",
    "renewed": "yellow",
    "acked": "green",
    "pulled": "green",
    "redriven": "cyan",
    "sent": "cyan",
    "released": "magenta",
    "sent back": "magenta",
    "filtered": "blue",
    "before start": "blue",
    "expired": "red",
    "dropped": "red",
    "skipped": "blue",
    "rejected": "red",
    "dead": "red",
    "stopped": "red",
    "quarantined": "red",
}
#: The column where the details of an event begin, after the dot, the time, the time passed and the event's name.
REASON_COLUMN = 50


@click.command()
@click.argument("message_id")
@click.option("--topic", default="", help="Only in this topic.")
@click.option("--group", default="", help="Only for this group.")
@asks
def why(client: popmq.Client, output: Output, message_id: str, topic: str, group: str) -> None:
    """Show what happened to a message in each group, and why it is not here.

    It shows for each group the events of a message (sent, popped, renewed, released, retried, dead, redriven, acked)
    with their times, clients and reasons, and the state of the message now. Events are kept as long as the message.

    \b
    Examples:
      popmq why 0f3a-1
      popmq why 0f3a-1 --topic orders --group billing
      popmq why 0f3a-1 --json | jq '.groups[].state'
    """
    lives = client.messages.why(message_id, topic, group)
    if output.as_json:
        output.objects(lives)
        return
    results: dict[str, popmq.Result | None] = {}
    for number, life in enumerate(lives):
        if number:
            click.echo()
        for each in life.groups:
            if each.group not in results:
                results[each.group] = _result(client, message_id, each.group)
        _show(message_id, life, results)


def _result(client: popmq.Client, message_id: str, group: str) -> popmq.Result | None:
    """The result of a message for a group, if it keeps results, and the caller may see them."""
    try:
        return client.results([message_id], group).get(message_id)
    except popmq.PopMQError:
        return None


def _show(message_id: str, life: popmq.MessageLife, results: dict[str, popmq.Result | None]) -> None:
    place = f"queue {life.queue} offset {life.offset}" if life.place == "stored" else life.place
    click.echo(f"{click.style(visible.line(message_id), bold=True)} in {click.style(life.topic, bold=True)}, {place}")
    click.echo(f"  stored {exact(life.stored_ms)}{f', due {exact(life.due_ms)}' if life.due_ms else ''}")
    if life.place == "stored" and not life.groups:
        click.echo("  no group reads this topic")
    for group in life.groups:
        _show_group(group)
        if (result := results[group.group]) is not None:
            what = "failed" if result.failed else f"{len(result.body):,} bytes {result.content_type}".rstrip()
            click.echo(f"  its result, stored {exact(result.stored_ms)}: {visible.line(what)}")


def _show_group(life: popmq.GroupLife) -> None:
    state = click.style(life.state, fg=COLOURS.get(life.state), bold=True)
    click.echo(f"\n  {click.style(life.group, bold=True)} · {state}")
    for line in life.explanation.splitlines():  # a reason in it may be a traceback
        click.echo(f"  {visible.line(line)}")
    before_ms = 0
    for event in life.events:
        click.echo(_line(event, before_ms))
        for line in event.reason.splitlines()[1:]:
            click.secho(f"  │{'':{REASON_COLUMN - 3}}{visible.line(line)}", dim=True)
        before_ms = event.time_ms or before_ms


def _line(event: popmq.LifeEvent, before_ms: int) -> str:
    """One event: its time, the time since the event before, its name, and its details."""
    colour = COLOURS.get(event.what)
    passed_ms = event.time_ms - before_ms if before_ms and event.time_ms else 0
    details = [
        f"attempt {event.attempt}" if event.attempt else "",
        event.client_id,
        f"until {_until(event)}" if event.until_ms else "",
        next(iter(event.reason.splitlines()), ""),
    ]
    when = exact(event.time_ms) if event.time_ms else f"{'–':23}"
    passed = click.style(f"{f'+{seconds(passed_ms / 1000)}' if passed_ms else '':9}", dim=True)
    what = click.style(f"{event.what:10}", fg=colour)
    told = visible.line(" · ".join(detail for detail in details if detail))
    return f"  {click.style('●', fg=colour)} {when}  {passed}  {what}{told}".rstrip()


def _until(event: popmq.LifeEvent) -> str:
    """The end of a lease, without its day if that is the event's."""
    until, now = exact(event.until_ms), exact(event.time_ms)
    return until[11:] if until[:10] == now[:10] else until
