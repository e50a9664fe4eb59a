"""`popmq client`: asks official RocketMQ 5 clients over the streams that they keep open."""

from __future__ import annotations

import click

import popmq
from popmq_cli.shared import visible
from popmq_cli.shared.asking import asks
from popmq_cli.shared.completing import topics
from popmq_cli.shared.output import Output


@click.group()
def client() -> None:
    """Ask a connected RocketMQ 5 client. `popmq sessions` lists them."""


@client.command()
@click.argument("client_id")
@asks
def stack(client: popmq.Client, output: Output, client_id: str) -> None:
    """Show the stacks of the client's threads, as it reports them.

    \b
    Examples:
      popmq client stack worker-1@4711@0@8x2
    """
    _show(output, client.sessions.stack(client_id))


@client.command()
@click.argument("client_id")
@click.argument("topic", shell_complete=topics)
@click.option("--queue", default=0, show_default=True, help="The queue of the message.")
@click.option("--offset", required=True, type=int, help="Its offset there; `popmq message` finds it.")
@asks
def verify(client: popmq.Client, output: Output, client_id: str, topic: str, queue: int, offset: int) -> None:
    """Let a push consumer handle one stored message once, and show the result. No message is leased or acked.

    \b
    Examples:
      popmq client verify worker-1@4711@0@8x2 orders --offset 17
    """
    _show(output, client.sessions.verify_message(client_id, topic, queue, offset))


def _show(output: Output, answer: popmq.ClientAnswer) -> None:
    if output.as_json:
        output.objects([answer])
        return
    click.secho(visible.line(answer.code), fg="green" if answer.code == "OK" else "red")
    if answer.text:
        click.echo(visible.lines(answer.text))
