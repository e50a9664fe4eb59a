"""`popmq ack`, `extend`, `release`, `reject`: settle leased messages by their handles."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

import popmq
from popmq_cli.shared.asking import DURATION, asks
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output


def handles(function: Callable[..., Any]) -> Callable[..., Any]:
    """GROUP HANDLE…; "-" reads handles from standard input."""
    return click.argument("group")(click.argument("handles", nargs=-1, required=True, callback=_from_stdin)(function))


def _from_stdin(_context: click.Context, _parameter: click.Parameter, value: Sequence[str]) -> list[str]:
    return sys.stdin.read().split() if list(value) == ["-"] else list(value)


@click.command()
@handles
@asks
def ack(client: popmq.Client, output: Output, group: str, handles: list[str]) -> None:
    """Ack messages: the group does not get them again.

    \b
    Examples:
      popmq ack billing HANDLE
      cat handles.txt | popmq ack billing -
    """
    client.ack(handles, group=group)
    output.note(f"{len(handles)} acked")


@click.command()
@handles
@click.option(
    "--invisible",
    type=DURATION,
    default=60.0,
    metavar="DURATION",
    help="The lease ends this long from now.  [default: 1m]",
)
@asks
def extend(client: popmq.Client, output: Output, group: str, handles: list[str], invisible: float) -> None:
    """Move the deadline of leases.

    \b
    Examples:
      popmq extend billing HANDLE --invisible 10m
    """
    _tell(output, handles, client.extend(handles, invisible, group=group))


@click.command()
@handles
@click.option(
    "--delay", type=DURATION, metavar="DURATION", help="Visible after this time.  [default: the group's backoff]"
)
@click.option("--uncounted", is_flag=True, help="Do not count the attempt.")
@click.option("--reason", default="", help="Kept with the message.")
@asks
def release(
    client: popmq.Client,
    output: Output,
    group: str,
    handles: list[str],
    delay: float | None,
    uncounted: bool,
    reason: str,
) -> None:
    """Release messages: they are delivered again.

    \b
    Examples:
      popmq release billing HANDLE --delay 0
      popmq release billing HANDLE --reason "not today"
    """
    _tell(output, handles, client.release(handles, delay, uncounted, reason, group=group))


@click.command()
@handles
@click.option("--delay", type=DURATION, metavar="DURATION", required=True, help="Visible after this time.")
@click.option("--reason", default="", help="Kept with the message.")
@asks
def snooze(client: popmq.Client, output: Output, group: str, handles: list[str], delay: float, reason: str) -> None:
    """Put messages back for a while: no attempt counts, as often as the group's snoozes_max allows.

    
    Examples:
      popmq snooze billing HANDLE --delay 5m
      popmq snooze billing HANDLE --delay 1h --reason "the bank is closed"
    """
    _tell(output, handles, client.snooze(handles, delay, reason, group=group))


@click.command()
@handles
@click.option("--reason", default="", help="Kept with the message.")
@asks
def reject(client: popmq.Client, output: Output, group: str, handles: list[str], reason: str) -> None:
    """Send messages to the dead-letter topic.

    \b
    Examples:
      popmq reject billing HANDLE --reason "not JSON"
    """
    _tell(output, handles, client.reject(handles, reason, group=group))


def _tell(output: Output, handles: list[str], results: list[popmq.InvisibleTimeResult]) -> None:
    if output.as_json:
        output.objects(
            {"handle": handle, "visible_ms": result.visible_ms, "dead_lettered": result.dead_lettered}
            for handle, result in zip(handles, results, strict=True)
        )
        return
    for result in results:
        output.note("dead-lettered" if result.dead_lettered else f"visible at {moment(result.visible_ms)}")
