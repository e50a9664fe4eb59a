"""`popmq`: its commands, which are imported when they are called. A help text needs none of them, nor the SDK."""

import contextlib
import difflib
import errno
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from popmq_cli.shared import exits
from popmq_cli.shared.connection import connection_options

_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {line.strip()}" for line in inspect.cleandoc(exits.__doc__ or "").splitlines()[2:-2]
)


class Row(NamedTuple):
    """A command: its module and function, and its line in `popmq --help`, which is the first one of its own help."""

    module: str
    function: str
    help: str


#: In the order of their work, not of the alphabet.
ROWS = {
    "serve": Row("broker.serve", "serve", "Run a broker on one data folder."),
    "context": Row("broker.context", "context", "Give brokers names, and select the one that commands call."),
    "topic": Row("readers.topic", "topic", "Create, change, show, purge and delete topics."),
    "group": Row("readers.group", "group", "Create, change, show and delete groups."),
    "apply": Row("applying.apply", "apply", "Create and change topics, groups and schedules as FILE says."),
    "send": Row("messages.send", "send", "Send messages to TOPIC."),
    "recall": Row("messages.delay", "recall", "Recall delayed messages: they will never be delivered."),
    "reschedule": Row("messages.delay", "reschedule", "Move a delayed message to another time."),
    "pop": Row("messages.pop", "pop", "Lease messages and print them."),
    "consume": Row(
        "messages.consume", "consume", "Print the messages of TOPIC for GROUP and ack each, until none is left."
    ),
    "browse": Row("messages.browse", "browse", "Show the messages of TOPIC, without a group."),
    "move": Row(
        "messages.move", "move", "Send the unfinished messages of --group from FROM to TO, and ack them in FROM."
    ),
    "migrate": Row("migrating.migrate", "migrate", "Bring TOPICs with their messages and groups to another broker."),
    "work": Row("messages.work", "work", "Run the handlers of a popmq.Worker."),
    "ack": Row("messages.settle", "ack", "Ack messages: the group does not get them again."),
    "extend": Row("messages.settle", "extend", "Move the deadline of leases."),
    "release": Row("messages.settle", "release", "Release messages: they are delivered again."),
    "snooze": Row(
        "messages.settle",
        "snooze",
        "Put messages back for a while: no attempt counts, as often as the group's snoozes_max allows.",
    ),
    "reject": Row("messages.settle", "reject", "Send messages to the dead-letter topic."),
    "ping": Row("broker.ping", "ping", "Check that the broker answers; show its release and its engine."),
    "bench": Row("broker.bench", "bench", "Send, pop and ack messages, and show rates and durations."),
    "top": Row("readers.top", "top", "Watch groups and topics: sorted, and down to the leases of a group."),
    "stats": Row("readers.stats", "stats", "Show numbers of groups, topics and the store."),
    "history": Row("readers.history", "history", "Show the last hour of a topic, a group, or the whole broker."),
    "why": Row("messages.why", "why", "Show what happened to a message in each group, and why it is not here."),
    "result": Row("messages.looking", "result", "Show the result of a message for GROUP, or wait for it."),
    "message": Row("messages.looking", "message", "Find messages of TOPIC by --id or --key, newest first."),
    "peek": Row("messages.looking", "peek", "Show what the next pop of GROUP would deliver."),
    "dlq": Row("messages.dlq", "dlq", "Look at dead letters, deliver them again, or discard them."),
    "delayed": Row("messages.delay", "delayed", "Show delayed messages of TOPIC, or of all topics, soonest first."),
    "schedule": Row("readers.schedule", "schedule", "Make the broker send messages at the times of a cron expression."),
    "transactions": Row("messages.transactions", "transactions", "Look at half messages, and end them."),
    "message-groups": Row(
        "readers.message_groups",
        "message_groups",
        "Show message groups of FIFO topics, and resume those that a failure stopped.",
    ),
    "leases": Row("readers.leases", "leases", "Show leases and their deadlines, and end them."),
    "sessions": Row("messages.looking", "sessions", "Show the clients that read for GROUP, or all clients."),
    "client": Row("readers.client", "client", "Ask a connected RocketMQ 5 client."),
    "owners": Row("readers.owners", "owners", "Show owners and their messages, and release them."),
    "offsets": Row("readers.offsets", "offsets", "Show, reset and clone the offsets of groups."),
    "mode": Row("readers.offsets", "mode", "Show or set how GROUP reads TOPIC: pop or pull."),
    "export": Row("messages.transfer", "export_", "Write the messages of TOPIC to FILE, or to standard output."),
    "import": Row("messages.transfer", "import_", "Send the messages of FILE to TOPIC."),
    "max-size": Row("broker.max_size", "max_size", "Show the limit of the data file, or set another one."),
    "backup": Row("broker.backup", "backup", "Copy the store of a running broker."),
    "console": Row("broker.console", "console", "Serve web pages of a broker, or of several with a menu."),
    "mcp": Row("broker.mcp", "mcp", "Serve the tools of an agent over standard input and output (MCP)."),
    "check": Row("broker.check", "check", "Check the store of a stopped broker."),
    "verify": Row("broker.verify", "verify", "Test the broker's guarantees on this machine."),
    "compact": Row("broker.compact", "compact", "Shrink the data file of a stopped broker."),
    "cluster": Row("broker.cluster", "cluster", "Look at a RocketMQ cluster, with or without a gateway before it."),
    "access-key": Row("broker.access_key", "access_key", "Create access keys, and show those of a broker."),
}


#: Commands that an unknown one may have meant, and how much of a name a similar one has in common with it.
MEANT_MAX, LIKENESS = 3, 0.6


def _give_up_output() -> None:
    """What is left in the buffer of the standard output goes nowhere: Python would try once more at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flush() -> None:
    if sys.stdout is not None:  # a broker has given it up, or it was closed before the process began
        sys.stdout.flush()  # here, since Python's own flush at the end could only print a traceback


@contextlib.contextmanager
def _ends() -> Iterator[None]:
    """Turns an interrupt, a signal to end, and an output that cannot be written into exit codes."""
    try:
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            _flush()
            raise
        _flush()
    except KeyboardInterrupt as ended:  # click would end with 1, as if the command had been refused
        _give_up_output()  # a flush would wait for a reader that has stopped reading
        click.echo(str(ended) or "interrupted", err=True)
        raise click.exceptions.Exit(exits.after(ended)) from None
    except BrokenPipeError:
        _give_up_output()
        raise click.exceptions.Exit(exits.PIPE_CLOSED) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _give_up_output()
        click.secho(f"popmq: the output cannot be written: {error.strerror}", fg="red", err=True)
        raise click.exceptions.Exit(exits.NOT_WRITTEN) from None
    except (ValueError, TypeError) as error:
        if (text := _not_utf8(error)) is None:
            raise
        shown = ascii(text.encode(errors="surrogateescape"))[2:-1]
        raise click.UsageError(f"'{shown:.200}' is not UTF-8, as the names and texts of a broker are") from None


def _not_utf8(error: BaseException | None) -> str | None:
    """The text that an error is about, if it came from an argument with bytes that are not UTF-8."""
    while error is not None:
        if isinstance(error, UnicodeEncodeError) and re.search("[\udc80-\udcff]", error.object):
            return error.object
        error = error.__cause__ or error.__context__
    return None


class Commands(click.Group):
    """The commands of ROWS."""

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        with _ends():  # --help and --version print here
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        with _ends():
            return super().invoke(ctx)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        known = args[0].startswith("-") or self.get_command(ctx, args[0]) is not None
        if not known and (meant := self._meant(ctx, args[0])):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, meant))}?")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, name: str) -> list[str]:
        """The commands with this name in groups, such as `dlq redrive`; else one with a similar name, or none."""
        groups = [(each, self.get_command(ctx, each)) for each in ROWS]
        inside = [
            f"{each} {name}" for each, group in groups if isinstance(group, click.Group) and name in group.commands
        ]
        return inside if 0 < len(inside) <= MEANT_MAX else difflib.get_close_matches(name, ROWS, 1, LIKENESS)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ROWS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = ROWS.get(cmd_name)
        if row is None:
            return None
        found: click.Command = getattr(importlib.import_module(f"popmq_cli.{row.module}"), row.function)
        for each in found.commands.values() if isinstance(found, click.Group) else [found]:
            for option in each.params:
                if option.metavar is None and isinstance(option.type, click.types.IntParamType):
                    option.metavar = "N"  # click says INTEGER RANGE
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in ROWS.items()])


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=_EXIT_CODES,
)
@connection_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for scripts.")
@click.version_option(package_name="popmq", message="popmq %(version)s")
@click.pass_context
def popmq(context: click.Context, /, **shared: Any) -> None:
    """PopMQ: a message broker with leases. One process, one folder, every OK on disk.

    \b
    Examples:
      popmq serve --data ./popmq-data &
      popmq topic create orders && popmq group create billing
      echo hello | popmq send orders
      popmq pop orders billing --ack
      popmq stats --watch
      popmq why MESSAGE_ID
    """
    context.obj = shared
    if os.environ.get("NO_COLOR"):
        context.color = False
