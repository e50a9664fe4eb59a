"""`popmq console`: the web pages, from the extra `console`."""

import logging
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from popmq.config import variable
from popmq_cli.shared.asking import connection_of
from popmq_cli.shared.connection import DEFAULT_ENDPOINT, connection_options
from popmq_cli.shared.contexts import Contexts, path

#: Variables that would give every visitor the key of the console.
KEY_VARIABLES = (
    "POPMQ_ACCESS_KEY",
    "POPMQ_SECRET",
    "POPMQ_SECRET_FILE",
    "POPMQ_CLIENT_CERT",
    "POPMQ_CLIENT_KEY",
)
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
@click.option("--also", multiple=True, metavar="CONTEXT", help="Offer the broker of this context, too. Repeatable.")
@click.option("--alone", is_flag=True, help="Offer no other broker.")
@click.option("--until-stdin-ends", is_flag=True, hidden=True)
def console(
    hosts: tuple[str, ...],
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    public_url: str,
    also: tuple[str, ...],
    alone: bool,
    until_stdin_ends: bool,
    **given: Any,
) -> None:
    """Serve web pages of a broker, or of several with a menu.

    The menu has all contexts (`popmq context list`) when the broker is one of them and only this machine reaches the
    pages; else, and with --endpoint, those that --also names. Secrets of contexts are not used: visitors log in.

    If the broker has access keys, the pages ask for one, and show and do what the key allows. It prints `popmq: console
    on URL` when it accepts requests. --tls and --tls-ca are for the connection to the broker, --tls-cert and --tls-key
    for the pages.

    \b
    Examples:
      popmq console
      popmq console --context prod --alone
      popmq console --endpoint queue.example:8082 --tls --port 8090
      popmq console --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
      popmq console --public-url https://console.example
    """
    try:
        from popmq_console.options import OptionError, Options, is_loopback
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
    for secret in KEY_VARIABLES:
        os.environ.pop(secret, None)
    if alone and also:
        raise click.UsageError("--alone and --also exclude each other")
    hosts = tuple(host.removeprefix("[").removesuffix("]") for host in hosts)
    context = _context_of(given, shared)
    is_private = all(map(is_loopback, hosts)) and not public_url
    others = () if alone else (*also, *(_all_contexts() if is_private and context is not None else ()))
    options = Options(
        reach.get("endpoint", DEFAULT_ENDPOINT),
        reach.get("tls", False),
        reach.get("tls_ca"),
        name=context or "",
        brokers=_menu(reach, context or "", others, also),
        hosts=hosts,
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


def _context_of(given: dict[str, Any], shared: dict[str, Any]) -> str | None:
    """The context whose broker is shown; "" if none is selected, None if an option or a variable names an endpoint."""
    named = given.get("context") or shared.get("context") or variable("context")
    if given.get("endpoint") or shared.get("endpoint") or (not named and variable("endpoint")):
        return None
    return str(named or Contexts(path()).selected)


def _all_contexts() -> list[str]:
    return sorted(Contexts(path()).by_name)


def _menu(first: dict[str, Any], name: str, others: Iterable[str], must: Iterable[str]) -> tuple[Any, ...]:
    """The brokers of the menu, with the first one; () if it is the only one. Raises UsageError.

    Of a context only what reaches its broker is read, never its key. `must`: those that the user names; others that
    cannot be offered are left out, with a line that says so.
    """
    from popmq_console.options import BROKERS_MAX, BrokerInMenu

    endpoint = first.get("endpoint", DEFAULT_ENDPOINT)
    found = [BrokerInMenu(name or endpoint, endpoint, first.get("tls", False), first.get("tls_ca"))]
    contexts = Contexts(path()) if others else None
    for other in dict.fromkeys(others):
        if contexts is None or other == name:
            continue
        fields, why = contexts.named(other), ""
        if fields.get("client_cert"):
            why = "it shows a client certificate, and every visitor would have its rights"
        elif len(found) == BROKERS_MAX:
            why = f"a console offers at most {BROKERS_MAX} brokers"
        if why and other in must:
            raise click.UsageError(f"--also {other}: {why}")
        if why:
            click.echo(f"popmq: context {other} is not in the menu: {why}", err=True)
        else:
            # "": nothing of the environment, which is about the first broker
            found.append(BrokerInMenu(other, fields["endpoint"], bool(fields.get("tls")), fields.get("tls_ca") or ""))
    return tuple(found) if len(found) > 1 else ()


def _say(text: str, of_serve: bool) -> None:
    """Shows why there is no console.

    `of_serve`: in the log of `popmq serve`, which has started this process, and with its flags.
    """
    if of_serve:
        log.error("%s", re.sub(r"--(port|host)\b", r"--console-\1", text))
    else:
        click.echo(f"popmq: {text}", err=True)
