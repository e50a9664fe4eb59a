"""Checks that the command line accepts the commands that documents and hints tell a reader to type."""

import shlex

import click

from popmq_cli.commands import popmq as command_line


def understand(words: list[str]) -> None:
    """Parses the words after `popmq` without running anything. Raises click.UsageError for an invalid command."""
    command, words = resolve(words)
    command.make_context(command.name or "", list(words))


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the first words name, and the remaining words. Raises click.UsageError for an unknown name."""
    command: click.Command = command_line
    context = click.Context(command_line)
    while isinstance(command, click.Group) and words:
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"there is no command {name!r}")
        command = found
    return command, words


def commands_of(block: str) -> list[list[str]]:
    """The words of each `popmq …` line of a console block."""
    calls = [
        call.partition("#")[0].strip().removeprefix("$ ") for line in block.splitlines() for call in line.split("&&")
    ]
    return [shlex.split(call)[1:] for call in calls if call.startswith("popmq ")]
