"""`popmq mcp`: a server of the Model Context Protocol for agents, from the extra `mcp`."""

import sys
from typing import Any

import click

from popmq_cli.shared.asking import connection_of
from popmq_cli.shared.connection import connection_options


@click.command()
@connection_options
@click.option(
    "--allow",
    default="",
    metavar="TOOLS",
    help="Tools that change something, with commas: redrive, purge, send.  [default: none]",
)
def mcp(allow: str, **given: Any) -> None:
    """Serve the tools of an agent over standard input and output (MCP).

    An MCP host (an editor, a chat program, an agent) starts it and calls its tools: topics, groups, numbers, the
    history of a message, messages that come next, dead letters. They change nothing, unless --allow names more. They
    may do what the access key may.

    \b
    Examples:
      popmq mcp
      popmq mcp --allow redrive --access-key agent --secret-file agent.secret
      claude mcp add popmq -- popmq mcp --endpoint 127.0.0.1:8081
    """
    try:
        from popmq_integrations.mcp import serving
    except ImportError as error:
        click.echo(f'popmq: `popmq mcp` needs the MCP SDK: pip install "popmq[mcp]" ({error})', err=True)
        sys.exit(1)
    allowed = {name.strip() for name in allow.split(",") if name.strip()}
    if unknown := allowed - serving.CHANGES.keys():
        raise click.BadParameter(
            f"there is no tool {', '.join(sorted(unknown))}: name {', '.join(serving.CHANGES)}", param_hint="--allow"
        )
    if sys.stdin.isatty():
        click.echo("popmq: an MCP host starts this command and speaks JSON with it; press Ctrl-D to end it", err=True)
    shared: dict[str, Any] = click.get_current_context().obj or {}
    serving.run(connection_of(given, shared), allowed)
