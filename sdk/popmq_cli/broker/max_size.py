"""`popmq max-size`: the limit of the data file of a running broker."""

from __future__ import annotations

import click

import popmq
from popmq_cli.shared.asking import SIZE, asks
from popmq_cli.shared.output import Output, size


@click.command("max-size")
@click.argument("limit", required=False, type=SIZE, metavar="[SIZE]")
@asks
def max_size(client: popmq.Client, output: Output, limit: int | None) -> None:
    """Show the limit of the data file, or set another one.

    The broker continues meanwhile. The new limit applies at once, so that a full store accepts sends again. It also
    applies to later starts, until --max-size of popmq serve is changed. A limit reserves no disk. It cannot be below
    the bytes in use. A lower limit does not shrink the file; popmq compact does.

    \b
    Examples:
      popmq max-size
      popmq max-size 200GiB
    """
    store = client.broker.stats().store if limit is None else client.broker.set_max_size(limit)
    if output.as_json:
        output.objects([store])
        return
    row = size(store.used_bytes), size(store.map_bytes), size(store.disk_free_bytes)
    output.table("Store", ["USED#", "OF#", "DISK FREE#"], [row])
