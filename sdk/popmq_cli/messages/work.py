"""`popmq work app:worker`: runs a popmq.Worker, in this process or in several."""

from __future__ import annotations

import importlib
import json
import logging
import os
import socket
import sys
import threading
import traceback
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import click

import popmq
from popmq import errors
from popmq_cli.messages.supervising import HOPELESS, PARENT, Supervisor
from popmq_cli.shared import exits, health, visible
from popmq_cli.shared.asking import DURATION, connection_of
from popmq_cli.shared.connection import CONNECTION, connection_options
from popmq_cli.shared.output import Output

LOG_FORMATS = ("text", "json")
_TEXT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One object in one line, for collectors, as `popmq serve --log-format json` writes it."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": os.getpid(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return visible.in_json(json.dumps(line, ensure_ascii=False, default=str))


def _start_log(level: str, form: str) -> None:
    """Sends the log of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class _Hopeless(click.UsageError):
    """Wrong usage, in a process of a supervisor."""

    exit_code = HOPELESS + exits.USAGE


@click.command()
@click.argument("target", metavar="MODULE:WORKER")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Number of processes.")
@click.option("--reload", is_flag=True, help="Start again when a Python file below this folder changes (development).")
@click.option(
    "--drain",
    type=DURATION,
    metavar="DURATION",
    help="Wait at most this long for running handlers.  [default: no limit]",
)
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), default="INFO", show_default=True)
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    default="text",
    show_default=True,
    help="text, or json: an object in each line.",
)
@click.option("--declare", is_flag=True, help="First create the topics and groups of the handlers that are not there.")
@click.option(
    "--health-port", type=click.IntRange(1, 65535), metavar="PORT", help="Answer probes on it: /healthz and /readyz."
)
@click.option(
    "--health-host",
    "health_hosts",
    default=["127.0.0.1"],
    multiple=True,
    metavar="HOST",
    show_default=True,
    help="Address of that port, or several.",
)
@click.option("--asyncapi", is_flag=True, help="Print an AsyncAPI document of the handlers, and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="That document as JSON; else it is YAML.")
@connection_options
def work(
    target: str,
    processes: int,
    reload: bool,
    drain: float | None,
    log_level: str,
    log_format: str,
    declare: bool,
    health_port: int | None,
    health_hosts: tuple[str, ...],
    asyncapi: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run the handlers of a popmq.Worker.

    At SIGTERM or Ctrl-C it begins no new message, and running handlers finish; the exit code is 0. At a second signal,
    or at the end of --drain, it stops at once with 130; messages of running handlers are visible to others at once, and
    the attempt does not count. It starts a process that dies again.

    \b
    Examples:
      popmq work app:worker
      popmq work app:worker --processes 4 --drain 25s
      popmq work app:worker --declare --log-format json
      popmq work app:worker --health-port 8085 --health-host 0.0.0.0
      popmq work app:worker --reload --endpoint 127.0.0.1:8081
      popmq work app:worker --asyncapi > asyncapi.yaml
    """
    _start_log(log_level, log_format)
    inherited = os.environ.pop(PARENT, None)
    if inherited is None and not asyncapi and (processes > 1 or reload or health_port):
        probed = _listening(health_hosts, health_port) if health_port else []
        sys.exit(Supervisor(sys.argv[1:], processes, Path.cwd() if reload else None, probed).run())
    hopeless = HOPELESS if inherited is not None else 0
    try:
        worker = _worker(target)
    except click.UsageError as error:
        raise (_Hopeless if hopeless else click.UsageError)(error.message) from error
    except Exception as error:  # of the module: its own lines are enough to find it
        click.echo("".join(traceback.format_exception(error.with_traceback(_below(error)))), err=True, nl=False)
        sys.exit(hopeless + exits.REFUSED)
    if asyncapi:
        click.echo(_described(worker, target, as_json, given), nl=False)
        return
    if inherited is not None:
        _end_with_parent(worker, int(inherited))
        if reports := os.environ.pop(health.REPORTS, ""):
            worker.use(health.Reports(int(reports)))
    try:
        drained = worker.run(_client(worker, given), drain, declare=declare)
    except errors.PopMQError as error:
        sys.exit(_ended_by(error, hopeless))
    except RuntimeError as error:
        raise (_Hopeless if hopeless else click.UsageError)(str(error)) from error
    if not drained:
        # Threads may still run a handler whose message was released: the end of this process ends them.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(exits.INTERRUPTED)


def _ended_by(error: errors.PopMQError, hopeless: int) -> int:
    """Says why the worker ended; returns the exit code."""
    if isinstance(error, errors.NotFound):
        error.action += "; or --declare, which creates what is missing"
    Output(as_json=False).error(error)
    code = exits.code_of(error)
    return hopeless + code if code == exits.REFUSED else code


def _described(worker: popmq.Worker, target: str, as_json: bool, given: dict[str, Any]) -> str:
    """An AsyncAPI document. No broker is asked."""
    shared: dict[str, Any] = click.get_current_context().obj or {}
    connection = connection_of(given, shared)
    endpoint = connection.get("endpoint") if _is_named(given, shared) or not worker.endpoint else None
    text = json.dumps(worker.asyncapi(target, endpoint=endpoint), indent=2, ensure_ascii=False)
    if as_json or shared.get("as_json"):
        return text + "\n"
    import yaml

    return str(yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True))


def _listening(hosts: tuple[str, ...], port: int) -> list[socket.socket]:
    opened = []
    for host in hosts:
        try:
            opened.append(health.listening(host, port))
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror  # < 0: of a look-up
            raise click.UsageError(
                f"health port {port} on {host} cannot be opened: {why}; name another with --health-port or "
                "--health-host"
            ) from error
    return opened


def _below(error: Exception) -> TracebackType | None:
    """The traceback from the first frame outside of this command and of the import system on."""
    found = error.__traceback__
    while found is not None and (found.tb_frame.f_code.co_filename.startswith("<frozen") or _is_ours(found)):
        found = found.tb_next
    return found or error.__traceback__


def _is_ours(frame: TracebackType) -> bool:
    return frame.tb_frame.f_globals.get("__name__", "").split(".")[0] in ("popmq_cli", "importlib")


def _worker(target: str) -> popmq.Worker:
    """The worker that MODULE:WORKER names, searched for in this folder first. Raises UsageError."""
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise click.UsageError(f"{target!r} is not MODULE:WORKER, such as app:worker")
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        raise click.UsageError(f"{module_name!r} is not the name of a module: for a file app.py write app:{name}")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the module exists, but one that it imports does not
        raise click.UsageError(f"there is no module {module_name!r} in {os.getcwd()}") from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, popmq.Worker):
        raise click.UsageError(f"{target} is not a popmq.Worker")
    return found


def _client(worker: popmq.Worker, given: dict[str, Any]) -> popmq.AsyncClient | None:
    """A client by the options. None if no option names an endpoint; the worker's own then precedes the environment."""
    shared: dict[str, Any] = click.get_current_context().obj or {}
    connection = connection_of(given, shared)
    if "endpoint" not in connection or (worker.endpoint and not _is_named(given, shared)):
        return None
    return popmq.AsyncClient(**connection)


def _is_named(given: dict[str, Any], shared: dict[str, Any]) -> bool:
    """Whether an option says how to reach the broker."""
    return any(given[name] or shared.get(name) for name in CONNECTION)


def _end_with_parent(worker: popmq.Worker, pipe: int) -> None:
    """Drains when the supervising process ends, also by a kill: the pipe from it is closed then."""

    def wait() -> None:
        os.read(pipe, 1)
        worker.stop()

    threading.Thread(target=wait, name="popmq-parent", daemon=True).start()
