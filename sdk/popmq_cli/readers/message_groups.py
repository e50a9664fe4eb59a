"""`popmq message-groups …`: message groups of FIFO topics that wait, are locked, or are stopped by a failure."""

from __future__ import annotations

import click

import popmq
from popmq_cli.shared.asking import asks
from popmq_cli.shared.completing import groups, topics
from popmq_cli.shared.output import Output, Row, counted

COLUMNS = ["MESSAGE GROUP", "WAITING#", "LEASED#", "STATE", "REASON"]


@click.group("message-groups")
def message_groups() -> None:
    """Show message groups of FIFO topics, and resume those that a failure stopped."""


@message_groups.command("list")
@click.argument("topic", shell_complete=topics)
@click.argument("group", shell_complete=groups)
@click.option("--stopped", is_flag=True, help="Only those that a failure stopped.")
@click.option("--max", "most", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Rows at most.")
@asks
def list_(client: popmq.Client, output: Output, topic: str, group: str, stopped: bool, most: int) -> None:
    """Show message groups of TOPIC that wait, are locked or stopped for GROUP.

    A message group is locked while one of its messages is leased or in backoff. WAITING is the number of its later
    messages.

    \b
    Examples:
      popmq message-groups list accounts billing
      popmq message-groups list accounts billing --stopped --json
    """
    shown = client.message_groups.list(topic, group, most, stopped)
    output.listing("Message groups", COLUMNS, shown.message_groups, _row)
    output.note(f"{counted(shown.waiting, 'message')} waiting, {counted(shown.stopped, 'message group')} stopped")


@message_groups.command()
@click.argument("topic", shell_complete=topics)
@click.argument("group", shell_complete=groups)
@click.argument("message_group")
@click.option(
    "--dead-letter", is_flag=True, help="Send its first message to the dead-letter topic instead of retrying it."
)
@asks
def resume(client: popmq.Client, output: Output, topic: str, group: str, message_group: str, dead_letter: bool) -> None:
    """Resume a stopped message group.

    \b
    Examples:
      popmq message-groups resume accounts billing customer-7
      popmq message-groups resume accounts billing customer-7 --dead-letter
    """
    client.message_groups.resume(topic, group, message_group, dead_letter)
    output.note(f"{message_group} goes on, {'without' if dead_letter else 'with'} its head")


def _row(state: popmq.MessageGroupState) -> Row:
    word = "stopped" if state.stopped else "locked" if state.leased else "waiting"
    return state.message_group, state.waiting, state.leased, word, next(iter(state.reason.splitlines()), "")
