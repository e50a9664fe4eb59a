"""`popmq cluster`: a RocketMQ cluster and its brokers, without a gateway, from the extra `server`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from popmq_cli.shared import exits
from popmq_cli.shared.output import Output

COLUMNS = ["BROKER", "ID#", "ROLE", "ADDRESS", "VERSION", "REPLICAS", "IN SYNC#", "CLOCK", "DISK"]
FINDINGS = ["BROKER", "SETTING", "IS", "SET", "PROMISE", "HOLDS", "WHY"]
#: Settings of `popmq serve` that say where the cluster is; for each what it means here.
OPTIONS = {
    "namesrv": ("HOST:PORT", "Name server of the cluster; repeat the flag, or use commas, for several."),
    "cluster": ("NAME", "Name of the cluster.  [default: the only one]"),
    "broker-key": ("FILE", "User at the brokers (TOML, mode 600: access_key, secret, token)."),
    "broker-tls": ("MODE", "TLS to name servers and brokers: off, on, verify.  [default: off]"),
    "broker-ca": ("FILE", "Authorities of the brokers' certificates (PEM)."),
    "broker-cert": ("FILE", "Certificate for brokers that ask for one (PEM)."),
    "broker-cert-key": ("FILE", "Private key of that certificate (PEM)."),
}


def _reaches(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say where the cluster is; the command gets the module that asks, `options` and `output`."""

    @functools.wraps(command)
    def run(as_json: bool, **given: Any) -> None:
        words = [
            word
            for flag in OPTIONS
            for value in _values(given.pop(flag.replace("-", "_")))
            for word in (f"--{flag}", value)
        ]
        output = Output(as_json)
        with _answered(output):
            from popmq_server.cluster.operating import questions

            command(questions, questions.options_of(words), output, **given)

    for flag, (metavar, text) in reversed(OPTIONS.items()):
        run = click.option(f"--{flag}", metavar=metavar, multiple=flag == "namesrv", help=text)(run)
    return click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")(run)


def _values(value: Any) -> list[str]:
    return list(value) if isinstance(value, tuple) else [] if value is None else [value]


@contextmanager
def _answered(output: Output) -> Iterator[None]:
    """Turns what goes wrong into a sentence and an exit code."""
    try:
        from popmq_server.errors import Refused, StartError
        from popmq_server.settings import SettingError
    except ImportError as error:
        click.echo(f'`popmq cluster` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(exits.REFUSED)
    try:
        yield
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    except StartError as error:
        click.secho(f"popmq: {error}", fg="red", err=True)
        sys.exit(exits.REFUSED)
    except Refused as refused:
        click.secho(f"popmq: {refused.message}", fg="red", err=True)
        if refused.action:
            click.echo(f"  → {refused.action}", err=True)
        sys.exit(exits.UNREACHABLE if refused.code == "UNAVAILABLE" else exits.REFUSED)


@click.group()
def cluster() -> None:
    """Look at a RocketMQ cluster, with or without a gateway before it.

    Each option can also be a variable: POPMQ_NAMESRV for --namesrv, as for `popmq serve --engine rocketmq`.
    """


@cluster.command()
@_reaches
def check(questions: Any, options: Any, output: Output) -> None:
    """Show which settings of the brokers weaken a promise.

    It ends with 1 if a promise is not met: then something is lost, repeated or refused that a cluster could keep.

    \b
    Examples:
      popmq cluster check --namesrv 10.0.0.7:9876
      POPMQ_NAMESRV=10.0.0.7:9876,10.0.0.8:9876 popmq cluster check --json
    """
    seen, findings = questions.checked(options)
    if output.as_json:
        output.objects([*map(_told, seen), *(finding._asdict() for finding in findings)])
    else:
        output.table("Brokers", COLUMNS, map(_row, seen))
        click.echo()
        output.table("Settings", FINDINGS, map(_finding, findings))
    bad = sum(not finding.is_met for finding in findings)
    output.note(f"{bad} of {len(findings)} findings break a promise" if findings else "no setting weakens a promise")
    sys.exit(exits.REFUSED if bad else exits.DONE)


@cluster.command()
@_reaches
def brokers(questions: Any, options: Any, output: Output) -> None:
    """Show the brokers: versions, roles, replicas in sync, clocks and disks.

    \b
    Examples:
      popmq cluster brokers --namesrv 10.0.0.7:9876
    """
    seen = questions.seen(options)
    if output.as_json:
        output.objects(map(_told, seen))
    else:
        output.table("Brokers", COLUMNS, map(_row, seen))


@cluster.command()
@click.argument("topic")
@click.option(
    "--set", "wanted", metavar="LAYOUT", help="Write this layout to all name servers, as broker-a:4;broker-b:4."
)
@_reaches
def layout(questions: Any, options: Any, output: Output, topic: str, wanted: str | None) -> None:
    """Show or write the layout of TOPIC: which queue of which broker has which number.

    Message groups and readers by offset depend on it. It is only to be written where name servers that were replaced
    have lost it, or have two that contradict each other: with the one that clients have seen.

    \b
    Examples:
      popmq cluster layout orders --namesrv 10.0.0.7:9876
      popmq cluster layout orders --namesrv 10.0.0.7:9876 --set "broker-a:4;broker-b:4"
    """
    found = questions.kept(options, topic, wanted)
    if output.as_json:
        output.objects([found._asdict()])
        return
    used = found.used or "none: gateways refuse the topic until one is written"
    output.fields(f"Layout of {topic}", {"used": used, **found.by_server})


def _told(seen: Any) -> dict[str, Any]:
    """As JSON, without the hundreds of settings."""
    return {name: value for name, value in seen._asdict().items() if name != "settings"} | {"role": seen.role}


def _row(seen: Any) -> list[Any]:
    if seen.error:
        return [seen.broker, seen.id, seen.role, seen.address, f"no answer: {seen.error}", "", "", "", ""]
    clock = "" if seen.ahead_s is None else f"{round(seen.ahead_s):+d} s"
    replicas = [seen.replicas, seen.in_sync] if seen.role == "master" else ["", ""]
    return [seen.broker, seen.id, seen.role, seen.address, seen.version, *replicas, clock, seen.disk]


def _finding(finding: Any) -> list[Any]:
    holds = "weaker" if finding.is_met else "NO"
    return [finding.broker, finding.setting, finding.value, finding.wanted, finding.promise, holds, finding.why]
