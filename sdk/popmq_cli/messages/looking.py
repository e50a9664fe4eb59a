"""`popmq message`, `popmq result`, `popmq peek` and `popmq sessions`: views of messages and clients."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

import click

import popmq
from popmq_cli.shared import exits, visible
from popmq_cli.shared.asking import DURATION, MOMENT, asks, filter_options
from popmq_cli.shared.completing import groups, topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, Row, counted, heading, show_body

SESSION_COLUMNS = ["CLIENT", "GROUP", "TOPICS", "CALLS", "IN FLIGHT#", "LAST SEEN"]


@click.command()
@click.argument("topic", shell_complete=topics)
@click.option("--id", "message_id", default="", help="The message id.")
@click.option("--key", default="", help="One of its keys.")
@click.option("--max", "most", type=click.IntRange(1, 4096), default=32, show_default=True, help="Rows at most.")
@click.option("--since", type=MOMENT, metavar="TIME", help="Stored at this time or later: 2026-01-31T12:00, 1h (ago).")
@click.option("--until", type=MOMENT, metavar="TIME", help="Stored at this time or before.")
@asks
def message(
    client: popmq.Client,
    output: Output,
    topic: str,
    message_id: str,
    key: str,
    most: int,
    since: datetime | None,
    until: datetime | None,
) -> None:
    """Find messages of TOPIC by --id or --key, newest first. TOPIC may be %DLQ%group.

    \b
    Examples:
      popmq message orders --key AA1
      popmq message orders --id 0f3a-1 --json
      popmq message %DLQ%billing --key AA1 --since 1h
      popmq message orders --key AA1 --since "yesterday 18:00"
    """
    if bool(message_id) == bool(key):
        raise click.UsageError("look up by --id or by --key")
    found = client.messages.look_up(topic, message_id, key, most, since, until)
    _show(output, found.deliveries)
    if not found.deliveries:
        output.note(f"no message of {topic} has this {'id' if message_id else 'key'}")
        sys.exit(exits.REFUSED)
    elif found.more:
        output.note(f"there may be more: --until {found.deliveries[-1].stored.isoformat()}")


@click.command()
@click.argument("group", shell_complete=groups)
@click.argument("message_ids", nargs=-1, required=True, metavar="MESSAGE_ID...")
@click.option("--wait", type=DURATION, default="0s", help="Wait so long for all of them.  [default: 0s]")
@click.option("--forget", is_flag=True, help="Forget them instead.")
@asks
def result(
    client: popmq.Client, output: Output, group: str, message_ids: tuple[str, ...], wait: float, forget: bool
) -> None:
    """Show the result of a message for GROUP, or wait for it.

    A group that keeps results (popmq group update GROUP --results-keep 1h) has what handlers gave with their acks, and
    why messages became dead letters.

    \b
    Examples:
      popmq result adder 0f3a-1
      popmq result adder 0f3a-1 0f3a-2 --wait 10s --json
      popmq result adder 0f3a-1 --forget
    """
    if forget:
        client.forget_results(message_ids, group)
        output.note(f"{len(message_ids)} results of {group} are forgotten")
        return
    found = client.results(message_ids, group, wait)
    if output.as_json:
        output.objects([*found.values()])
    for each in found.values() if not output.as_json else ():
        how = f"failed after {counted(each.attempts, 'attempt')}" if each.failed else each.content_type
        parts = each.message_id, how, f"stored {moment(each.stored_ms)}"
        click.secho(visible.line(" · ".join(filter(None, parts))), fg="red" if each.failed else "cyan")
        show_body(each.reason.encode() if each.failed else each.body)
    if missing := [each for each in message_ids if each not in found]:
        output.note(f"no result of {group}: {' '.join(missing)}")
        sys.exit(exits.REFUSED)


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument("group", shell_complete=groups)
@click.option("--max", "most", type=click.IntRange(1, 4096), default=32, show_default=True, help="Rows at most.")
@filter_options
@asks
def peek(
    client: popmq.Client, output: Output, topic: str, group: str, most: int, tag: str | None, sql: str | None
) -> None:
    """Show what the next pop of GROUP would deliver. Nothing is leased, and no attempt counts.

    \b
    Examples:
      popmq peek orders billing
      popmq peek orders billing --max 1 --json
    """
    shown = client.messages.peek(topic, group, most, tag=tag, sql=sql)
    _show(output, shown)
    if not shown:
        output.note(f"no message for {group} in {topic}")


@click.command()
@click.argument("group", default="", shell_complete=groups)
@asks
def sessions(client: popmq.Client, output: Output, group: str) -> None:
    """Show the clients that read for GROUP, or all clients.

    It also shows clients that answer check-backs. A session ends 120 s after the client was last seen, or when it
    disconnects. A client without a session is shown for five minutes after it popped, pulled or sent. If its calls do
    not name it, it is shown by its host and access key.

    \b
    Examples:
      popmq sessions
      popmq sessions billing --json
    """
    output.listing("Sessions", SESSION_COLUMNS, client.sessions.list(group, recent=True), _session_row)


def _show(output: Output, deliveries: Sequence[popmq.Delivery]) -> None:
    if output.as_json:
        output.objects(deliveries)
        return
    for delivery in deliveries:
        attempt = f"attempt {delivery.attempt}" if delivery.attempt else ""
        line = heading(delivery, attempt, f"stored {moment(delivery.stored_ms)}")
        click.secho(visible.line(f"{delivery.message_id} · {line}"), fg="cyan")
        show_body(delivery.body)


def _session_row(session: popmq.ClientSession) -> Row:
    group = "transactions" if session.stream else session.group
    who = session.client_id or " ".join(filter(None, (session.host, session.access_key)))
    counts = (("POP", session.pops), ("PULL", session.pulls), ("SEND", session.sends))
    calls = ", ".join(f"{what} {count:,}" for what, count in counts if count)
    return who, group, ", ".join(session.topics), calls, session.in_flight, moment(session.last_seen_ms)
