"""`popmq ping`: whether a broker answers, and how fast."""

import time

import click

import popmq
from popmq_cli.asking import asks
from popmq_cli.output import Output


@click.command()
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Calls, one after the other.")
@asks
def ping(client: popmq.Client, output: Output, count: int) -> None:
    """Ask the broker for a sign of life.

    It ends with 0 once the broker has answered each call, and with 3 when it did not answer within --timeout. Any
    access key may call it. The first answer includes the time to connect.

    \b
    Examples:
      popmq ping
      popmq ping --timeout 30s && echo "the broker is up"    # waits for one that is starting
      popmq ping --count 5 --json
    """
    for number in range(1, count + 1):
        began = time.perf_counter()
        client.list_topics()
        took = time.perf_counter() - began
        if output.as_json:
            output.objects([{"endpoint": client.endpoint, "call": number, "seconds": round(took, 6)}])
        else:
            click.echo(f"{client.endpoint} answered in {took * 1000:.1f} ms")
