"""`popmq access-key`: keys for a broker that asks who calls (`popmq serve --access-keys FILE`)."""

import sys
from datetime import UTC, datetime, timedelta

import click


@click.group("access-key")
def access_key() -> None:
    """Make access keys."""


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
def new(name: str, grants: tuple[str, ...], days: int | None) -> None:
    """Print a new key with a random secret, as it stands in the file of `popmq serve --access-keys`.

    The file is for its owner only (mode 600); a running broker takes what is added to it within a second.

    \b
    Examples:
      install -m 600 /dev/null keys.toml
      popmq access-key new operator --allow admin >> keys.toml
      popmq access-key new auditor --allow admin --days 90 >> keys.toml
      popmq access-key new billing --allow receive:orders/billing --allow "send:invoices*" >> keys.toml
    """
    try:
        from popmq_server.access.access_keys import stanza
    except ImportError as error:
        click.echo(f'`popmq access-key` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(1)
    try:
        expires = datetime.now(UTC) + timedelta(days=days) if days else None
        click.echo(stanza(name, grants, expires))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
