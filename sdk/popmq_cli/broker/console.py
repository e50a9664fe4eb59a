"""`popmq console`: the web pages, from the extra `console`."""

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from popmq_cli.shared.asking import connection_of
from popmq_cli.shared.connection import DEFAULT_ENDPOINT, connection_options

#: Variables that would give every visitor the key of the console.
KEY_VARIABLES = ("POPMQ_ACCESS_KEY", "POPMQ_SECRET", "POPMQ_SECRET_FILE")
log = logging.getLogger("popmq.console")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@connection_options
@click.option(
    "--host", "hosts", default=["127.0.0.1"], multiple=True, show_default=True, help="Address to listen on, or several."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8090, show_default=True, help="0: any free one.")
@click.option("--tls-cert", type=FILE, help="Serve HTTPS with this certificate chain (PEM).")
@click.option("--tls-key", type=FILE, help="The private key of the certificate (PEM).")
@click.option(
    "--public-url", default="", metavar="URL", help="The address that browsers use, if there is a proxy: https://…."
)
@click.option("--until-stdin-ends", is_flag=True, hidden=True)
def console(
    hosts: tuple[str, ...],
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    public_url: str,
    until_stdin_ends: bool,
    **given: Any,
) -> None:
    """Serve web pages of a broker.

    If the broker has access keys, the pages ask for one, and show and do what the key allows. It prints `popmq: console
    on URL` when it accepts requests. --tls and --tls-ca are for the connection to the broker, --tls-cert and --tls-key
    for the pages.

    \b
    Examples:
      popmq console
      popmq console --endpoint queue.example:8082 --tls --port 8090
      popmq console --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
      popmq console --public-url https://console.example
    """
    try:
        from popmq_console.options import OptionError, Options
        from popmq_console.serving import run
    except ImportError as error:
        _say(f'`popmq console` needs its pages: pip install "popmq[console]" ({error})', until_stdin_ends)
        sys.exit(1)
    shared: dict[str, Any] = click.get_current_context().obj or {}
    reach = connection_of(given, shared)
    if reach.get("client_cert"):
        # Calls of every visitor would have the rights of the certificate, before any login.
        click.echo("popmq: the console shows no client certificate; name a port that does not require one", err=True)
        sys.exit(2)
    for variable in KEY_VARIABLES:
        os.environ.pop(variable, None)
    options = Options(
        reach.get("endpoint", DEFAULT_ENDPOINT),
        reach.get("tls", False),
        reach.get("tls_ca"),
        hosts=tuple(host.removeprefix("[").removesuffix("]") for host in hosts),
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        public_url=public_url,
    )
    try:
        run(options, lambda url: click.echo(f"popmq: console on {url}"), until_stdin_ends)
    except KeyboardInterrupt:
        pass  # Ctrl-C ends a console as it should, like `popmq serve`
    except OptionError as error:
        _say(str(error), until_stdin_ends)
        sys.exit(2)


def _say(text: str, of_serve: bool) -> None:
    """Shows why there is no console.

    `of_serve`: in the log of `popmq serve`, which has started this process, and with its flags.
    """
    if of_serve:
        log.error("%s", re.sub(r"--(port|host)\b", r"--console-\1", text))
    else:
        click.echo(f"popmq: {text}", err=True)
