"""`popmq access-key`: keys for a broker that requires them (`popmq serve --access-keys FILE`)."""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

import popmq
from popmq_cli.shared.asking import asks
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, size

COLUMNS = ["KEY", "ALLOWED", "CERTIFICATES", "ENDS", "CONNECTIONS#", "IN FLIGHT#", "CALLS/S AT MOST#", "LIMITED#"]


@click.group("access-key")
def access_key() -> None:
    """Create access keys, and show those of a broker."""


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
@click.option("--bytes-in-flight", metavar="SIZE", help="Bytes of requests and unread answers at most, e.g. 32MiB.")
@click.option("--certificate", metavar="NAME", help="The name in a client certificate, instead of a secret.")
@click.option(
    "--secret-to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the secret into this new file, for the client, and print only its hash. Not for official RocketMQ "
    "clients: the broker can verify their signatures only with the secret.",
)
def new(
    name: str,
    grants: tuple[str, ...],
    days: int | None,
    connections: int | None,
    calls_per_s: int | None,
    bytes_in_flight: str | None,
    certificate: str | None,
    secret_to: Path | None,
) -> None:
    """Print a new key with a random secret, in the format of the file of `popmq serve --access-keys`.

    Only the owner may read the file (mode 600). A running broker reads changes of it within a second.

    \b
    Examples:
      install -m 600 /dev/null keys.toml
      popmq access-key new operator --allow admin >> keys.toml
      popmq access-key new auditor --allow admin --days 90 >> keys.toml
      popmq access-key new billing --allow receive:orders/billing --secret-to billing.secret >> keys.toml
      popmq access-key new guest --allow send:orders --calls-per-s 100 --connections 5 >> keys.toml
      popmq access-key new shop --allow send:orders --certificate shop.example.org >> keys.toml
    """
    if certificate and secret_to:
        raise click.UsageError("a key with --certificate has no secret: leave out --secret-to")
    with _broker_installed():
        from popmq_server.protocols.access.key_file import new_secret, secret_hash, stanza
        from popmq_server.protocols.access.key_limits import KeyLimits
        from popmq_server.settings import size as read_size
    secret = new_secret()
    try:
        expires = datetime.now(UTC) + timedelta(days=days) if days else None
        in_flight = read_size(bytes_in_flight) if bytes_in_flight else 0
        limits = KeyLimits(connections or 0, calls_per_s or 0, in_flight)
        table = stanza(name, grants, expires, limits, certificate or "", secret_hash(secret) if secret_to else "")
    except (ValueError, ArgumentTypeError) as error:
        raise click.UsageError(str(error)) from None
    if secret_to:
        _write(secret_to, secret)
    click.echo(table)


def _write(path: Path, secret: str) -> None:
    """Writes a secret into a new file that only its owner may read."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret + "\n")
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--secret-to") from None


@contextlib.contextmanager
def _broker_installed() -> Iterator[None]:
    """Around imports of the broker: says how to install it, and exits."""
    try:
        yield
    except ImportError as error:
        click.echo(f'`popmq access-key` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(1)


@access_key.command("hash")
def hash_() -> None:
    """Read a secret from standard input and print its hash, for `secret_hash` in the file of access keys.

    With a copy of that file no one can make calls. The key's clients continue to use their secret, except official
    RocketMQ clients, whose signatures the broker can verify only with the secret.

    \b
    Examples:
      popmq access-key hash < billing.secret
    """
    with _broker_installed():
        from popmq_server.protocols.access.key_file import secret_hash
    try:
        click.echo(secret_hash(sys.stdin.read().strip()))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@access_key.command("list")
@asks
def list_(client: popmq.Client, output: Output) -> None:
    """Show the broker's access keys, without their secrets, with their rights and how much of their limits they use.

    A caller without the right admin sees only its own key. LIMITED counts the calls that a limit has refused since the
    broker started.

    \b
    Examples:
      popmq access-key list
    """
    found = client.access_keys.list()
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
