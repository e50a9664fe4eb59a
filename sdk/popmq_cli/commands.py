"""`popmq`: the commands, gathered from one module per family."""

import importlib.metadata
import inspect
from typing import Any

import click

from popmq_cli import exits
from popmq_cli.access_key import access_key
from popmq_cli.asking import connection_options
from popmq_cli.backup import backup
from popmq_cli.check import check
from popmq_cli.client import client
from popmq_cli.compact import compact
from popmq_cli.delay import delayed, recall
from popmq_cli.dlq import dlq
from popmq_cli.group import group
from popmq_cli.looking import message, peek, sessions
from popmq_cli.max_size import max_size
from popmq_cli.message_groups import message_groups
from popmq_cli.offsets import mode, offsets
from popmq_cli.owners import owners
from popmq_cli.pop import pop
from popmq_cli.revive import revive
from popmq_cli.send import send
from popmq_cli.serve import serve
from popmq_cli.settle import ack, extend, reject, release
from popmq_cli.stats import stats
from popmq_cli.topic import topic
from popmq_cli.transactions import transactions
from popmq_cli.transfer import export_, import_
from popmq_cli.why import why

_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {line.strip()}" for line in inspect.cleandoc(exits.__doc__ or "").splitlines()[2:-2]
)


class InOrder(click.Group):
    """Commands in the order of their work, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=InOrder,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=_EXIT_CODES,
)
@connection_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for scripts.")
@click.version_option(importlib.metadata.version("popmq"), message="popmq %(version)s")
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


COMMANDS = (
    (serve, topic, group),
    (send, recall, pop, ack, extend, release, reject),
    (stats, why, message, peek, dlq, delayed, transactions, message_groups, revive, sessions, client, owners),
    (offsets, mode, export_, import_, max_size, backup, check, compact, access_key),
)
for family in COMMANDS:
    for command in family:
        popmq.add_command(command)
