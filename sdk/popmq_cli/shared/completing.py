"""Completes the names of topics and groups in a shell: asks the broker, briefly; without an answer it offers none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

import popmq
from popmq_cli.shared.asking import connect
from popmq_cli.shared.connection import CONNECTION

#: Seconds to wait for the broker after a press of the tab key.
ANSWER_S = 0.5


def topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of topics with this prefix."""
    return _names(context, incomplete, lambda client: client.topics.list())


def groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of groups with this prefix."""
    return _names(context, incomplete, lambda client: client.groups.list())


def schedules(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of schedules with this prefix."""
    return _names(context, incomplete, lambda client: client.schedules.list())


def _names(
    context: click.Context,
    incomplete: str,
    ask: Callable[[popmq.Client], Iterable[popmq.Topic | popmq.Group | popmq.Schedule]],
) -> list[str]:
    given = {name: context.params.get(name) for name in CONNECTION}
    try:
        with connect(given, context.find_root().params, ANSWER_S) as client:
            return [each.name for each in ask(client) if each.name.startswith(incomplete)]
    except (popmq.PopMQError, click.ClickException):
        return []
