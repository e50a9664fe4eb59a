"""`popmq`: its commands, which are imported when they are called. A help text needs none of them, nor the SDK."""

import importlib
import inspect
from typing import Any, NamedTuple

import click

from popmq_cli import exits
from popmq_cli.connection import connection_options

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
    "serve": Row("serve", "serve", "Run a broker on one data folder."),
    "context": Row("context", "context", "Know brokers by name, and select the one that commands ask."),
    "topic": Row("topic", "topic", "Make, change, show, purge and delete topics."),
    "group": Row("group", "group", "Make, change, show and delete groups."),
    "send": Row("send", "send", "Send messages to TOPIC."),
    "recall": Row("delay", "recall", "Take delayed messages back."),
    "pop": Row("pop", "pop", "Lease messages and print them."),
    "consume": Row("consume", "consume", "Print the messages of TOPIC for GROUP and ack each, until none is left."),
    "browse": Row("browse", "browse", "Show the messages of TOPIC."),
    "move": Row("move", "move", "Send what --group has still to do in FROM to TO, and ack it in FROM."),
    "work": Row("work", "work", "Run the handlers of a popmq.Worker."),
    "ack": Row("settle", "ack", "Finish messages: they never come back."),
    "extend": Row("settle", "extend", "Move the end of leases."),
    "release": Row("settle", "release", "Give messages back, to come again."),
    "reject": Row("settle", "reject", "Send messages to the dead-letter topic."),
    "ping": Row("ping", "ping", "Ask the broker for a sign of life, its release and its engine."),
    "bench": Row("bench", "bench", "Send, pop and ack messages, and show rates and durations."),
    "top": Row("top", "top", "Watch groups and topics: sorted, and down to the leases of a group."),
    "stats": Row("stats", "stats", "Show numbers of groups, topics, store."),
    "why": Row("why", "why", "Why is my message not here?"),
    "message": Row("looking", "message", "Look messages of TOPIC up by --id or --key, newest first."),
    "peek": Row("looking", "peek", "What the next pop of GROUP would deliver."),
    "dlq": Row("dlq", "dlq", "Look at dead letters, and deliver them again."),
    "delayed": Row("delay", "delayed", "Messages that are scheduled for later."),
    "schedule": Row("schedule", "schedule", "Make the broker send messages at the times of a cron expression."),
    "transactions": Row("transactions", "transactions", "Look at half messages, and end them."),
    "message-groups": Row("message_groups", "message_groups", "Look at message groups of FIFO topics."),
    "revive": Row("revive", "revive", "Look at what is leased, until when."),
    "sessions": Row("looking", "sessions", "Clients that read for GROUP, or for any."),
    "client": Row("client", "client", "Ask a connected RocketMQ 5 client."),
    "owners": Row("owners", "owners", "Look at owners and what they hold."),
    "offsets": Row("offsets", "offsets", "Show, reset and clone the offsets of groups."),
    "mode": Row("offsets", "mode", "How GROUP reads TOPIC: pop or pull."),
    "export": Row("transfer", "export_", "Write the messages of TOPIC to FILE, or to standard output."),
    "import": Row("transfer", "import_", "Send the messages of FILE to TOPIC."),
    "max-size": Row("max_size", "max_size", "Show the limit of the data file, or set another one."),
    "backup": Row("backup", "backup", "Copy the store of a running broker."),
    "console": Row("console", "console", "Serve web pages of a broker."),
    "check": Row("check", "check", "Check the store of a stopped broker."),
    "verify": Row("verify", "verify", "Test what the broker promises, on this machine."),
    "compact": Row("compact", "compact", "Shrink the data file of a stopped broker."),
    "access-key": Row("access_key", "access_key", "Make access keys, and look at those of a broker."),
}


class Commands(click.Group):
    """The commands of ROWS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ROWS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = ROWS.get(cmd_name)
        if row is None:
            return None
        found: click.Command = getattr(importlib.import_module(f"popmq_cli.{row.module}"), row.function)
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
    """PopMQ: a message broker that leases. One process, one folder, every OK on disk.

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
