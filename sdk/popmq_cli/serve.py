"""`popmq serve`: the broker itself, from the extra `server`."""

import sys

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
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=9464,
    show_default=True,
    help="Prometheus port on the loopback; 0 = off.",
)
@click.option(
    "--max-size", metavar="SIZE", default="64GiB", show_default=True, help="Limit of the data file, e.g. 20GiB."
)
@click.option(
    "--sync",
    type=click.Choice(["full", "meta", "none"]),
    default="full",
    show_default=True,
    help="full: an OK is on disk. meta: a power cut may lose the last commit. none: … whatever the system held back.",
)
def serve(data: str, host: str, port: int, metrics_port: int, max_size: str, sync: str) -> None:
    """Run a broker on one data folder.

    It prints `popmq: ready on HOST:PORT` when it takes requests. SIGTERM and Ctrl-C drain it: what was promised is on
    disk, what is in flight is answered.

    \b
    Examples:
      popmq serve
      popmq serve --data /var/lib/popmq --host 0.0.0.0 --max-size 200GiB
      popmq serve --data /tmp/try --port 0 --sync none
    """
    try:
        from popmq_server.__main__ import main
    except ImportError as error:
        click.echo(f'popmq serve needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(1)
    arguments = {
        "data": data,
        "host": host,
        "port": port,
        "metrics-port": metrics_port,
        "max-size": max_size,
        "sync": sync,
    }
    sys.exit(main([word for name, value in arguments.items() for word in (f"--{name}", str(value))]))
