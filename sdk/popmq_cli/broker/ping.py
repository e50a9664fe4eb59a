"""`popmq ping`: whether a broker answers, and how fast."""

from __future__ import annotations

import time

import click

import popmq
from popmq_cli.shared.asking import asks
from popmq_cli.shared.output import Output


@click.command()
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Calls, one after the other.")
@asks
def ping(client: popmq.Client, output: Output, count: int) -> None:
    """Check that the broker answers; show its release and its engine.

    It lists the capabilities that the engine lacks, with what to use instead, and the promises that it keeps less
    strictly. The embedded engine lacks none, and keeps all.

    It ends with 0 when the broker has answered each call, and with 3 if it did not answer within --timeout. Any
    access key may call it. The first answer includes the time to connect.

    \b
    Examples:
      popmq ping
      popmq ping --timeout 30s && echo "the broker is up"    # waits for one that is starting
      popmq ping --count 5 --json
    """
    for number in range(1, count + 1):
        began = time.perf_counter()
        info = client.info()
        took = time.perf_counter() - began
        if output.as_json:
            told = {"version": info.version, "engine": info.engine, "lacking": dict(info.lacking)}
            told["weaker"] = dict(info.weaker)
            output.objects([{"endpoint": client.endpoint, "call": number, "seconds": round(took, 6), **told}])
        else:
            click.echo(f"{client.endpoint} answered in {took * 1000:.1f} ms")
    if not output.as_json:
        click.echo(f"PopMQ {info.version}, engine {info.engine}")
        for name, instead in info.lacking.items():
            click.echo(f"  without {name}; instead: {instead}")
        for name, how in info.weaker.items():
            click.echo(f"  weaker {name}: {how}")
