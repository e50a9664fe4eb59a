"""The options for reaching the broker. Does not import the SDK, which `popmq --help` does not need."""

from collections.abc import Callable
from typing import Any

import click

DEFAULT_ENDPOINT = "127.0.0.1:8081"

_CONNECTION = (
    click.option(
        "--context", metavar="NAME", help="The broker of this name: `popmq context list`.  [env: POPMQ_CONTEXT]"
    ),
    click.option(
        "--endpoint", metavar="HOST:PORT", help=f"The broker.  [env: POPMQ_ENDPOINT; default: {DEFAULT_ENDPOINT}]"
    ),
    click.option("--tls", is_flag=True, default=None, help="With TLS.  [env: POPMQ_TLS=1]"),
    click.option("--tls-ca", metavar="FILE", help="With TLS, trust this certificate (PEM).  [env: POPMQ_TLS_CA]"),
    click.option(
        "--client-cert", metavar="FILE", help="Show this certificate (PEM), with TLS.  [env: POPMQ_CLIENT_CERT]"
    ),
    click.option("--client-key", metavar="FILE", help="Its private key (PEM).  [env: POPMQ_CLIENT_KEY]"),
    click.option("--access-key", metavar="NAME", help="Call with this key.  [env: POPMQ_ACCESS_KEY]"),
    # A secret among the arguments would show in the list of processes and in the shell's history.
    click.option("--secret-file", metavar="FILE", help="Its secret.  [env: POPMQ_SECRET, POPMQ_SECRET_FILE]"),
)
#: The parameters of these options.
CONNECTION = ("context", "endpoint", "tls", "tls_ca", "client_cert", "client_key", "access_key", "secret_file")


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How to reach the broker: options of `popmq` itself and of each command."""
    for option in reversed(_CONNECTION):
        function = option(function)
    return function
