"""Shared by all commands that call a broker: connection options, output, errors and exit codes."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

import popmq
from popmq import errors
from popmq.config import switch, trimmed, variable
from popmq.duration import seconds_of
from popmq_cli.shared import exits
from popmq_cli.shared.connection import CONNECTION, connection_options
from popmq_cli.shared.contexts import in_use
from popmq_cli.shared.moments import moment_of
from popmq_cli.shared.output import Output

DEFAULT_TIMEOUT_S = 5.0
#: How long to try an endpoint where no broker answers, unless --timeout says so: a broker that was started in the line
#: before is there by then, and a wrong port is reported soon.
REACH_S = 2.0

#: Options that a variable may name, too; that of the secret is read by the SDK.
_VARIABLES = ("endpoint", "tls", "tls_ca", "client_cert", "client_key", "access_key")

_SIZE = re.compile(r"(\d+(?:\.\d+)?)(B|KiB|MiB|GiB|TiB)?")
_POWERS = {"B": 0, "": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4}
#: The module of the SDK in which it refuses what a field cannot carry.
_CHECKS = "popmq._given.checking"
#: More than any store or disk has, and less than a number of the contract.
_SIZE_MAX = 1 << 60

if TYPE_CHECKING:
    FloatType = click.ParamType[float]
    IntType = click.ParamType[int]
    MomentType = click.ParamType[datetime]
else:
    FloatType = IntType = MomentType = click.ParamType  # no generic class in click 8.1, our floor


class Duration(FloatType):
    """Seconds from "90", "1.5s", "250ms", "10m", "1h30m", "3d"."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return seconds_of(value)
        except errors.InvalidField:
            self.fail(f"{value!r} is not a duration: write 90, 1.5s, 250ms, 10m, 1h30m or 3d", param, ctx)


class Size(IntType):
    """Bytes from "1000", "64KiB", "1.5MiB", "10GiB"."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value)
        size = float(found[1]) * 1024 ** _POWERS[found[2] or ""] if found else math.inf
        if size > _SIZE_MAX:
            self.fail(f"{value!r} is not a size: write 1000, 64KiB, 1.5MiB or 10GiB", param, ctx)
        return round(size)


class Moment(MomentType):
    """A time: see moments.py. `ahead`: whether a bare duration lies ahead of now, and not before it."""

    name = "time"

    def __init__(self, ahead: bool = False) -> None:
        self._ahead = ahead

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return moment_of(value, datetime.now().astimezone(), self._ahead)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()
SIZE = Size()
MOMENT = Moment()
LATER = Moment(ahead=True)


def connection_of(given: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """How to reach the broker, as popmq_cli/shared/contexts.py says. An option of the command wins over one of `popmq`.

    The parameters of a popmq.Client. `endpoint` is missing when nothing names one. With a context that was named they
    are complete, so that the client takes nothing from the environment. Raises UsageError for an unknown context.
    """
    options = {name: given[name] or shared.get(name) for name in CONNECTION}
    named = options["context"] or variable("context")
    variables: dict[str, Any] = {} if named else {name: variable(name) for name in _VARIABLES}
    if variables:
        variables["tls"] = _switch("tls")
    context = in_use(named, bool(options["endpoint"] or variables.get("endpoint")))

    def value(name: str) -> Any:
        return options[name] or variables.get(name) or context.get(name)

    kept = {} if options["access_key"] or variables.get("access_key") else context  # the secret of its own key only
    path = options["secret_file"] or kept.get("secret_file")
    found = {
        "endpoint": value("endpoint"),
        "tls": value("tls"),
        "tls_ca": value("tls_ca"),
        "client_cert": value("client_cert"),
        "client_key": value("client_key"),
        "access_key": value("access_key"),
        "secret": _secret(path) if path else kept.get("secret"),
    }
    connection = {name: each for name, each in found.items() if each}
    if not named:
        return connection
    keyless = {} if "access_key" in connection else {"access_key": "", "secret": ""}
    return {"tls": False, "tls_ca": "", "client_cert": "", "client_key": "", **keyless, **connection}


def _switch(name: str) -> bool:
    try:
        return switch(name)
    except errors.InvalidField as error:
        raise click.UsageError(f"{error}") from None


def connect(given: dict[str, Any], shared: dict[str, Any], timeout: float | None) -> popmq.Client:
    """A client of the broker that `connection_of` finds. Raises PopMQError."""
    return popmq.Client(
        **connection_of(given, shared),
        timeouts=popmq.Timeouts.all(DEFAULT_TIMEOUT_S if timeout is None else timeout),
        retry=popmq.Retry(reach=REACH_S if timeout is None else math.inf),
    )


def _secret(path: str) -> str:
    """The text of a file; "-" is the standard input."""
    try:
        with click.open_file(path) as file:
            return trimmed(str(file.read()))
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--secret-file") from None


def asks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a command that asks a broker: it gets a `client` and an `output`, and errors become exit codes."""

    @connection_options
    @click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for scripts.")
    @click.option(
        "--timeout",
        type=DURATION,
        metavar="DURATION",
        help=f"How long a call may take.  [default: {DEFAULT_TIMEOUT_S:g}s; {REACH_S:g}s where no broker answers]",
    )
    @functools.wraps(function)
    def command(as_json: bool, timeout: float | None, **arguments: Any) -> None:
        shared: dict[str, Any] = click.get_current_context().obj or {}
        output = Output(as_json or shared.get("as_json", False))
        given = {name: arguments.pop(name) for name in CONNECTION}
        try:
            with connect(given, shared, timeout) as client:
                try:
                    function(client=client, output=output, **arguments)
                except (errors.NotFound, errors.Unauthenticated) as error:
                    from popmq_cli.shared.advice import advise  # here: most commands need no advice

                    advise(client, error)
                    raise
        except errors.PopMQError as error:
            output.error(error)
            sys.exit(exits.code_of(error))
        except (TypeError, ValueError) as error:
            if not _is_of_a_field(error):
                raise
            raise click.UsageError(str(error)) from None

    return command


def _is_of_a_field(error: Exception) -> bool:
    """Whether the SDK refused what a field of the contract cannot carry, such as a number of a hundred digits."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_globals["__name__"] == _CHECKS


def kept(settings: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `settings` without defaults in their help: such a command leaves what is not given as it is."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        others = len(getattr(function, "__click_params__", []))
        function = settings(function)
        for option in getattr(function, "__click_params__", [])[others:]:
            option.help = option.help.partition("  [default:")[0]
        return function

    return decorate


@contextlib.contextmanager
def nothing_to_create() -> Iterator[None]:
    """Leaves the advice to create what is missing out of errors: who deletes it does not want it."""
    try:
        yield
    except errors.NotFound as error:
        error.action = ""
        raise


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--tag and --sql: the filter of a group in a topic."""
    tag = click.option("--tag", metavar="TAGS", help='Only these tags: "a || b".')
    sql = click.option(
        "--sql", metavar="SQL92", help="Only messages for which this is true: \"region = 'eu' AND amount > 100\"."
    )
    return tag(sql(function))


def by_topic(values: Sequence[str], option: str) -> dict[str, str]:
    """Values given as TOPIC=EXPRESSION, by topic."""
    pairs = [value.partition("=") for value in values]
    for topic, equals, expression in pairs:
        if not (topic and equals and expression):
            raise click.BadParameter(f"{topic + equals + expression!r} is not TOPIC=EXPRESSION", param_hint=option)
    return {topic: expression for topic, _, expression in pairs}


def sure(question: str, yes: bool) -> None:
    """Asks for confirmation; aborts on no. A script cannot answer, and must pass --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: add --yes.")
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort as aborted:
        if isinstance(aborted.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None  # click would end with 1, as after a no
        raise


def pair(text: str) -> tuple[str, str]:
    """A property as it is typed."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
    return name, value
