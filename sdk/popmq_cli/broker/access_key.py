"""`popmq access-key`: keys for a broker that requires them (`popmq serve --access-keys FILE`)."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

import click

import popmq
from popmq_cli.shared.asking import asks
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, size

COLUMNS = ["KEY", "ALLOWED", "CERTIFICATES", "ENDS", "CONNECTIONS#", "IN FLIGHT#", "CALLS/S AT MOST#", "LIMITED#"]


@click.group("access-key")
def access_key() -> None:
    """Make access keys, and look at those of a broker."""


@access_key.command()
@click.argument("name")
@click.option(
    "--allow",
    "grants",
    multiple=True,
    required=True,
    metavar="GRANT",
    help="send:TOPIC, receive:TOPIC/GROUP, admin or *; names may end with *. As often as needed.",
)
@click.option("--days", type=click.IntRange(1, 36_500), help="The key expires after this many days.  [default: never]")
@click.option("--connections", type=click.IntRange(1), help="Open connections of the key at most.")
@click.option("--calls-per-s", type=click.IntRange(1), help="Calls a second at most.")
@click.option("--bytes-in-flight", metavar="SIZE", help="Requests and answers under way at most, e.g. 32MiB.")
@click.option("--certificate", metavar="NAME", help="The name in a client certificate, instead of a secret.")
def new(
    name: str,
    grants: tuple[str, ...],
    days: int | None,
    connections: int | None,
    calls_per_s: int | None,
    bytes_in_flight: str | None,
    certificate: str | None,
) -> None:
    """Print a new key with a random secret, in the format of the file of `popmq serve --access-keys`.

    The file is for its owner only (mode 600); a running broker takes what is added to it within a second.

    \b
    Examples:
      install -m 600 /dev/null keys.toml
      popmq access-key new operator --allow admin >> keys.toml
      popmq access-key new auditor --allow admin --days 90 >> keys.toml
      popmq access-key new billing --allow receive:orders/billing --allow "send:invoices*" >> keys.toml
      popmq access-key new guest --allow send:orders --calls-per-s 100 --connections 5 >> keys.toml
      popmq access-key new shop --allow send:orders --certificate shop.example.org >> keys.toml
    """
    try:
        from popmq_server.access.key_file import stanza
        from popmq_server.access.key_limits import KeyLimits
        from popmq_server.settings import size as read_size
    except ImportError as error:
        click.echo(f'`popmq access-key` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(1)
    try:
        expires = datetime.now(UTC) + timedelta(days=days) if days else None
        in_flight = read_size(bytes_in_flight) if bytes_in_flight else 0
        limits = KeyLimits(connections or 0, calls_per_s or 0, in_flight)
        click.echo(stanza(name, grants, expires, limits, certificate or ""))
    except (ValueError, ArgumentTypeError) as error:
        raise click.UsageError(str(error)) from None


@access_key.command("list")
@asks
def list_(client: popmq.Client, output: Output) -> None:
    """The broker's keys without their secrets: what they allow, and what they use now of their limits.

    Without the right admin, the caller's own key. LIMITED counts the calls that a limit has refused since the broker
    started.

    \b
    Examples:
      popmq access-key list
    """
    found = client.access_keys()
    if not found.enabled:
        output.note("The broker requires no keys: every client that reaches a port may do everything.")
    output.listing("Access keys", COLUMNS, found.access_keys, _row)


def _row(key: popmq.AccessKey) -> tuple[object, ...]:
    return (
        key.name,
        ", ".join(key.allow),
        ", ".join(key.certificates),
        moment(key.expires_ms) if key.expires_ms else "never",
        f"{key.connections:,}" + (f" of {key.connections_max:,}" if key.connections_max else ""),
        size(key.bytes_in_flight) + (f" of {size(key.bytes_in_flight_max)}" if key.bytes_in_flight_max else ""),
        f"{key.calls_per_s_max:,}" if key.calls_per_s_max else "",
        key.limited,
    )
