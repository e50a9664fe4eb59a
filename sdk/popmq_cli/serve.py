"""`popmq serve`: the broker itself, from the extra `server`."""

import sys
from typing import Any

import click


@click.command()
@click.option(
    "--data", metavar="DIR", default="popmq-data", help="Data folder, made when missing.  [default: ./popmq-data]"
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="gRPC port; 0 = any free one."
)
@click.option(
    "--tls-port",
    type=click.IntRange(0, 65535),
    help="gRPC port with TLS; 0 = none.  [default: 8082, or none when that is taken]",
)
@click.option("--tls-only", is_flag=True, help="Leave the port without TLS closed.")
@click.option(
    "--tls-cert",
    metavar="FILE",
    help="Certificate chain (PEM), read again when it is replaced.  [default: one for development, made in DIR]",
)
@click.option("--tls-key", metavar="FILE", help="Its private key (PEM).")
@click.option(
    "--access-keys",
    metavar="FILE",
    help="Who may do what (TOML, mode 600); every call then needs a key.  See `popmq access-key new`.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Prometheus port on the loopback; 0 = off.  [default: 9464, or none when that is taken]",
)
@click.option(
    "--max-size",
    metavar="SIZE",
    help="Limit of the data file, e.g. 20GiB.  [default: 64GiB, or what `popmq max-size` has set]",
)
@click.option(
    "--sync",
    type=click.Choice(["full", "meta", "none"]),
    default="full",
    show_default=True,
    help="full: an OK is on disk. meta: a power cut may lose the last commit. none: … whatever the system held back.",
)
def serve(tls_only: bool, **flags: Any) -> None:
    """Run a broker on one data folder.

    It prints `popmq: ready on HOST:PORT` when it takes requests, and what else serves where. SIGTERM and Ctrl-C drain
    it: what was promised is on disk, what is in flight is answered.

    \b
    Examples:
      popmq serve
      popmq serve --data /var/lib/popmq --host 0.0.0.0 --max-size 200GiB
      popmq serve --tls-cert cert.pem --tls-key key.pem --tls-only --access-keys keys.toml
      popmq serve --data /tmp/try --port 0 --tls-port 0 --sync none
    """
    try:
        from popmq_server.__main__ import main
    except ImportError as error:
        click.echo(f'`popmq serve` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(1)
    given = [(name.replace("_", "-"), value) for name, value in flags.items() if value is not None]
    words = [word for name, value in given for word in (f"--{name}", str(value))]
    sys.exit(main([*words, *(["--tls-only"] if tls_only else [])]))
