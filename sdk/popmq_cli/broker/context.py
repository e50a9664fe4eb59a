"""`popmq context`: brokers by name."""

import os
import sys
from typing import Any

import click

from popmq_cli.shared.contexts import Contexts, changed, path
from popmq_cli.shared.output import Output

FILE = click.Path(exists=True, resolve_path=True)


def names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes the names of contexts."""
    try:
        return sorted(name for name in Contexts(path()).by_name if name.startswith(incomplete))
    except click.ClickException:
        return []


@click.group()
def context() -> None:
    """Give brokers names, and select the one that commands call.

    Options take precedence over the context that --context or POPMQ_CONTEXT names, and this context over
    POPMQ_ENDPOINT and the other variables. The selected context is used if none of these names a broker.
    """


@context.command()
@click.argument("name")
@click.option("--endpoint", required=True, metavar="HOST:PORT", help="The broker.")
@click.option("--tls", is_flag=True, help="With TLS.")
@click.option("--tls-ca", metavar="FILE", type=FILE, help="With TLS, trust this certificate (PEM).")
@click.option("--client-cert", metavar="FILE", type=FILE, help="Show this certificate (PEM), with TLS.")
@click.option("--client-key", metavar="FILE", type=FILE, help="Its private key (PEM).")
@click.option("--access-key", metavar="NAME", help="Call with this key.")
@click.option("--secret-file", metavar="FILE", help='Its secret stays in this file. "-": read it now and store it.')
@click.option("--select", is_flag=True, help="Make commands call this broker from now on.")
def add(name: str, select: bool, **fields: Any) -> None:
    """Add a broker, or replace its entry. The first one is selected.

    \b
    Examples:
      popmq context add local --endpoint 127.0.0.1:8081
      popmq context add prod --endpoint mq:8082 --tls --access-key ops --secret-file ~/.popmq-secret --select
      pass show popmq | popmq context add staging --endpoint mq:8082 --tls --access-key ops --secret-file -
    """
    if bool(fields["access_key"]) != bool(fields["secret_file"]):
        raise click.UsageError("--access-key and --secret-file belong together")
    if bool(fields["client_cert"]) != bool(fields["client_key"]):
        raise click.UsageError("--client-cert and --client-key belong together")
    _check_endpoint(fields["endpoint"])
    if fields["secret_file"] == "-":
        fields["secret"] = sys.stdin.read().strip()
        fields["secret_file"] = None
    elif fields["secret_file"]:
        fields["secret_file"] = os.path.abspath(os.path.expanduser(fields["secret_file"]))
    with changed() as contexts:
        contexts.by_name[name] = {field: value for field, value in fields.items() if value}
        if select or not contexts.selected:
            contexts.selected = name
        selected = contexts.selected == name
    Output(False).note(f"context {name}: {fields['endpoint']}{', selected' if selected else ''}")


@context.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for scripts.")
def list_(as_json: bool) -> None:
    """Show the brokers; secrets are not shown.

    \b
    Examples:
      popmq context list
    """
    contexts = Contexts(path())
    rows = [
        {
            "selected": name == contexts.selected,
            "name": name,
            "endpoint": fields.get("endpoint", ""),
            "tls": bool(fields.get("tls") or fields.get("tls_ca") or fields.get("client_cert")),
            "access_key": fields.get("access_key", ""),
        }
        for name, fields in sorted(contexts.by_name.items())
    ]
    columns = ["", "CONTEXT", "ENDPOINT", "TLS", "ACCESS KEY"]
    Output(as_json).listing("Contexts", columns, rows, _row)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    mark, tls = "*" if row["selected"] else "", "yes" if row["tls"] else ""
    return mark, row["name"], row["endpoint"], tls, row["access_key"]


@context.command()
@click.argument("name", shell_complete=names)
def select(name: str) -> None:
    """Make commands call this broker from now on.

    \b
    Examples:
      popmq context select prod
    """
    with changed() as contexts:
        contexts.named(name)
        contexts.selected = name
    Output(False).note(f"context {name} is selected")


@context.command()
@click.argument("name", shell_complete=names)
def remove(name: str) -> None:
    """Remove a broker.

    \b
    Examples:
      popmq context remove staging
    """
    with changed() as contexts:
        contexts.named(name)
        del contexts.by_name[name]
        if contexts.selected == name:
            contexts.selected = ""
    Output(False).note(f"context {name} is removed")


def _check_endpoint(endpoint: str) -> None:
    """Raises BadParameter. Connects to nothing."""
    import popmq  # here: the other commands of contexts need no client

    try:
        popmq.Client(endpoint).close()
    except popmq.errors.InvalidField as error:
        raise click.BadParameter(
            f"{error.message.removeprefix('endpoint: ')} ({error.action})", param_hint="--endpoint"
        ) from None
