"""`popmq consume`: a consumer for the shell. It prints messages, or runs a program for each of them."""

from __future__ import annotations

import os
import subprocess
import sys

import click

import popmq
from popmq_cli.shared import visible
from popmq_cli.shared.asking import DURATION, asks, filter_options
from popmq_cli.shared.completing import groups, topics
from popmq_cli.shared.output import Output, show_body, text_of

#: Bytes at the end of a program's standard error that become the reason of its failure.
REASON_BYTES = 1024


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument("group", shell_complete=groups)
@click.option(
    "--exec", "program", metavar="CMD", help="Run this shell command for each message: its body is the input."
)
@click.option("--follow", is_flag=True, help="Wait for more messages, until Ctrl-C.")
@click.option("--max", "most", type=click.IntRange(1), help="End after this number of messages.")
@click.option("--invisible", type=DURATION, metavar="DURATION", help="Length of the lease.  [default: the group's]")
@filter_options
@asks
def consume(
    client: popmq.Client,
    output: Output,
    topic: str,
    group: str,
    program: str | None,
    follow: bool,
    most: int | None,
    invisible: float | None,
    tag: str | None,
    sql: str | None,
) -> None:
    """Print the messages of TOPIC for GROUP and ack each, until none is left.

    With --exec a message is acked when the command ends with 0. Otherwise it is released with the group's backoff, and
    the exit code and the end of the standard error are its reason. The lease is renewed while the command runs. The
    environment has POPMQ_TOPIC, POPMQ_GROUP, POPMQ_MESSAGE_ID, POPMQ_KEY, POPMQ_TAG and POPMQ_ATTEMPT.

    \b
    Examples:
      popmq consume orders billing
      popmq consume orders billing --follow --json | jq -r .key
      popmq consume orders billing --follow --exec 'curl --fail --data-binary @- http://localhost:8000/orders'
    """
    idle = None if follow else 0.0
    handled = 0
    with client.consume(
        topic, group, invisible=invisible, until_idle=idle, confirm=True, on_error="raise", tag=tag, sql=sql
    ) as consumer:
        for delivery in consumer:
            with delivery:
                if program is None:
                    _print(output, delivery)
                elif reason := _failure(program, delivery):
                    output.note(f"message {visible.line(delivery.message_id)}, attempt {delivery.attempt}: {reason}")
                    delivery.release(reason=reason)
            handled += 1
            if handled == most:
                break
    if not handled:
        output.note(f"no message for {group} in {topic}")


def _print(output: Output, delivery: popmq.Delivery) -> None:
    """Prints a message, and flushes it before its guard acks it, so that a broken pipe loses nothing."""
    try:
        if output.as_json:
            output.objects([delivery])
        else:
            show_body(delivery.body)
        sys.stdout.flush()
    except OSError:
        delivery.release(0.0, count=False, reason="not printed")  # visible at once: no attempt was made
        raise


def _failure(program: str, delivery: popmq.Delivery) -> str:
    """Runs the command; returns why it failed, or ""."""
    known = {
        "POPMQ_TOPIC": delivery.topic,
        "POPMQ_GROUP": delivery.group,
        "POPMQ_MESSAGE_ID": delivery.message_id,
        "POPMQ_KEY": delivery.key,
        "POPMQ_TAG": delivery.tag,
        "POPMQ_ATTEMPT": str(delivery.attempt),
    }
    done = subprocess.run(program, shell=True, input=delivery.body, env={**os.environ, **known}, stderr=subprocess.PIPE)
    click.echo(done.stderr, nl=False, err=True)
    if done.returncode == 0:
        return ""
    said = text_of(done.stderr[-REASON_BYTES:]) or ""
    return f"exit code {done.returncode}{': ' if said.strip() else ''}{said.strip()}"
