"""`popmq consume`: a consumer for the shell. It prints messages, or runs a program for each of them."""

from __future__ import annotations

import sys

import click

import popmq
from popmq_cli.messages.program import failure
from popmq_cli.shared import visible
from popmq_cli.shared.asking import DURATION, asks, filter_options
from popmq_cli.shared.completing import groups, topics
from popmq_cli.shared.output import Output, show_body
from popmq_cli.shared.signals import Drain, Terminated


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument("group", shell_complete=groups)
@click.option(
    "--exec", "program", metavar="CMD", help="Run this shell command for each message: its body is the input."
)
@click.option("--follow", is_flag=True, help="Wait for more messages, until Ctrl-C.")
@click.option("--max", "most", type=click.IntRange(1), help="End after this number of messages.")
@click.option("--invisible", type=DURATION, metavar="DURATION", help="Length of the lease.  [default: the group's]")
@click.option(
    "--drain",
    type=DURATION,
    default=5.0,
    metavar="DURATION",
    help="How long SIGTERM waits for the running command.  [default: 5s]",
)
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
    drain: float,
    tag: str | None,
    sql: str | None,
) -> None:
    """Print the messages of TOPIC for GROUP and ack each, until none is left.

    With --exec it acks a message when the command ends with 0. Otherwise it releases the message with the group's
    backoff; the reason is the exit code and the end of the standard error. It renews the lease while the command runs.
    The environment has POPMQ_TOPIC, POPMQ_GROUP, POPMQ_MESSAGE_ID, POPMQ_KEY, POPMQ_TAG and POPMQ_ATTEMPT. It does not
    wait for processes that the command leaves in the background.

    At SIGTERM it begins no further message, and lets the running command finish; with --follow the exit code is 0. If
    the command still runs after --drain, or at Ctrl-C, it ends the command; the message is visible to others at once,
    and the attempt does not count.

    \b
    Examples:
      popmq consume orders billing
      popmq consume orders billing --follow --json | jq -r .key
      popmq consume orders billing --follow --exec 'curl --fail --data-binary @- http://localhost:8000/orders'
    """
    idle = None if follow else 0.0
    handled = 0
    reading = client.consume(
        topic, group, invisible=invisible, until_idle=idle, confirm=True, on_error="raise", tag=tag, sql=sql
    )
    with reading as consumer, Drain(consumer.stop, drain) as draining:
        for delivery in consumer:
            try:
                with delivery:
                    if program is None:
                        _print(output, delivery)
                    elif reason := failure(program, delivery.body, _variables(delivery)):
                        output.note(_about(delivery, reason))
                        delivery.release(reason=reason)
            except popmq.errors.LeaseLost as lost:  # as after any restart of the broker: no reason to end
                output.note(_about(delivery, str(lost)))
            handled += 1
            if handled == most:
                break
    if draining.signal is not None:
        if not follow:
            raise Terminated(draining.signal)  # there may be messages left
    elif not handled:
        output.note(f"no message for {group} in {topic}")


def _about(delivery: popmq.Delivery, what: str) -> str:
    return f"message {visible.line(delivery.message_id)}, attempt {delivery.attempt}: {what}"


def _print(output: Output, delivery: popmq.Delivery) -> None:
    """Prints a message, and flushes it before its guard acks it, so that a broken pipe loses nothing."""
    try:
        if output.as_json:
            output.objects([delivery])
        else:
            show_body(delivery.body)
        sys.stdout.flush()
    except OSError:
        delivery.release(0.0, uncounted=True, reason="not printed")  # visible at once: no attempt was made
        raise


def _variables(delivery: popmq.Delivery) -> dict[str, str]:
    return {
        "POPMQ_TOPIC": delivery.topic,
        "POPMQ_GROUP": delivery.group,
        "POPMQ_MESSAGE_ID": delivery.message_id,
        "POPMQ_KEY": delivery.key,
        "POPMQ_TAG": delivery.tag,
        "POPMQ_ATTEMPT": str(delivery.attempt),
    }
