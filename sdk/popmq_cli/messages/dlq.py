"""`popmq dlq …`: dead letters, their reasons, delivering them again, and discarding them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

import popmq
from popmq_cli.shared import visible
from popmq_cli.shared.asking import asks, sure
from popmq_cli.shared.completing import groups
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, text_of

BODY_SHOWN_MAX = 500


class Chosen(NamedTuple):
    """Which messages a redrive or discard takes: those that are named, else all of the topic or reason, else all."""

    offsets: tuple[int, ...]
    message_ids: tuple[str, ...]
    topic: str
    reason: str | None
    exception: str
    yes: bool  # ask no confirmation

    @property
    def named(self) -> bool:
        """Whether single messages are named."""
        return bool(self.offsets or self.message_ids)

    @property
    def words(self) -> str:
        """The part of a question that limits `all`."""
        with_reason = "" if self.reason is None else f" with the reason {self.reason!r}"
        with_exception = f" with the exception {self.exception}" if self.exception else ""
        return f"{f' from {self.topic}' if self.topic else ''}{with_reason}{with_exception}"

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Those of `redrive` and `discard` after the group."""
        return self.offsets, self.topic, self.message_ids, self.reason, self.exception


def chooses(one: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of a redrive, as `chosen`; `one`: what an offset names."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--offset", "offsets", type=int, multiple=True, help=f"Only this {one}; may be repeated.")
        @click.option("--id", "message_ids", multiple=True, help="Only this message; may be repeated.")
        @click.option("--topic", default="", help="Only those of this topic.")
        @click.option("--reason", help="Only those whose reason has this first line.")
        @click.option(
            "--exception", default="", metavar="NAME", help="Only those whose reason begins with this exception."
        )
        @click.option("--yes", is_flag=True, help="Do not ask.")
        @functools.wraps(function)
        def command(
            offsets: tuple[int, ...],
            message_ids: tuple[str, ...],
            topic: str,
            reason: str | None,
            exception: str,
            yes: bool,
            **arguments: Any,
        ) -> None:
            function(chosen=Chosen(offsets, message_ids, topic, reason, exception, yes), **arguments)

        return command

    return decorate


@click.group()
def dlq() -> None:
    """Look at dead letters, deliver them again, or discard them.

    A dead letter is a message whose attempts are used up, or that was rejected.
    """


@dlq.command("list")
@click.option(
    "--by",
    type=click.Choice(["group", "reason", "exception"]),
    default="group",
    show_default=True,
    help="What is counted.",
)
@asks
def list_(client: popmq.Client, output: Output, by: str) -> None:
    """Show the groups that have dead letters, with the number; or reasons or exceptions, with the first and last time.

    \b
    Examples:
      popmq dlq list
      popmq dlq list --by reason
      popmq dlq list --by exception
    """
    dead = {row.group: row.dead for row in client.broker.stats().groups if row.dead}
    if by != "group":
        (_reasons if by == "reason" else _exceptions)(client, output, sorted(dead))
        return
    if output.as_json:
        output.objects({"group": group, "dead": count} for group, count in sorted(dead.items()))
    else:
        output.table("Dead letters", ["GROUP", "DEAD#"], sorted(dead.items()))


def _reasons(client: popmq.Client, output: Output, names: list[str]) -> None:
    """The reasons of the dead letters of these groups."""
    found = [(group, each) for group in names for each in client.dead_letters.reasons(group)]
    if output.as_json:
        output.objects({"group": group} | dataclasses.asdict(each) for group, each in found)
        return
    rows = [
        (
            group,
            each.messages,
            moment(each.first_ms),
            moment(each.last_ms),
            visible.line(each.reason) or "no reason given",
        )
        for group, each in found
    ]
    output.table("Dead letters by reason", ["GROUP", "DEAD#", "FIRST", "LAST", "REASON"], rows)


def _exceptions(client: popmq.Client, output: Output, names: list[str]) -> None:
    """The exceptions with which the reasons of these groups begin, the most frequent first."""
    sums: dict[tuple[str, str], list[popmq.DeadLetterReason]] = {}
    for group in names:
        for each in client.dead_letters.reasons(group):
            sums.setdefault((group, each.exception), []).append(each)
    found: list[dict[str, Any]] = [
        {
            "group": group,
            "exception": exception,
            "messages": sum(each.messages for each in alike),
            "reasons": len(alike),
            "first_ms": min(each.first_ms for each in alike),
            "last_ms": max(each.last_ms for each in alike),
        }
        for (group, exception), alike in sums.items()
    ]
    found.sort(key=lambda row: (row["group"], -row["messages"], row["exception"]))
    if output.as_json:
        output.objects(found)
        return
    rows = [
        (
            row["group"],
            row["messages"],
            row["reasons"],
            moment(row["first_ms"]),
            moment(row["last_ms"]),
            visible.line(row["exception"]) or "none in the reason",
        )
        for row in found
    ]
    output.table("Dead letters by exception", ["GROUP", "DEAD#", "REASONS#", "FIRST", "LAST", "EXCEPTION"], rows)


@dlq.command()
@click.argument("group", shell_complete=groups)
@click.option("--offset", type=click.IntRange(0), default=0, show_default=True, help="Begin at this dead letter.")
@click.option("--max", "most", type=click.IntRange(1, 4096), default=20, show_default=True, help="Rows at most.")
@asks
def show(client: popmq.Client, output: Output, group: str, offset: int, most: int) -> None:
    """Show dead letters of GROUP, oldest first, with their origin and reason. They stay there.

    \b
    Examples:
      popmq dlq show billing
      popmq dlq show billing --offset 100 --max 50 --json
    """
    client.groups.get(group)
    try:
        page = client.messages.browse(f"%DLQ%{group}", 0, offset, most)
    except popmq.errors.TopicNotFound:
        page = popmq.Page((), 0, 0, 0)  # the topic is made by the first dead letter
    if output.as_json:
        output.objects(page.deliveries)
        return
    for delivery in page.deliveries:
        _show(delivery)
    rest = page.max_offset - page.next_offset
    if rest > 0:
        output.note(f"{rest} more: popmq dlq show {group} --offset {page.next_offset}")
    elif not page.deliveries:
        output.note(f"no dead letters of {group}")


@dlq.command()
@click.argument("group", shell_complete=groups)
@chooses("dead letter")
@asks
def redrive(client: popmq.Client, output: Output, group: str, chosen: Chosen) -> None:
    """Deliver dead letters of GROUP again, all or the named ones. Their attempts begin at 1.

    \b
    Examples:
      popmq dlq redrive billing --offset 3 --offset 4
      popmq dlq redrive billing --id 0f3a-1
      popmq dlq redrive billing --topic orders --yes
      popmq dlq redrive billing --exception ConnectionError --yes
    """
    client.groups.get(group)
    if not chosen.named:
        sure(f"Deliver all dead letters of {group}{chosen.words} again?", chosen.yes)
    redrive_chosen(client, output, group, chosen, "redriven")


@dlq.command()
@click.argument("group", shell_complete=groups)
@chooses("dead letter")
@asks
def discard(client: popmq.Client, output: Output, group: str, chosen: Chosen) -> None:
    """Remove dead letters of GROUP for good, all or the named ones. They are not delivered again.

    \b
    Examples:
      popmq dlq discard billing --offset 3
      popmq dlq discard billing --reason "ValueError: no such account" --yes
    """
    client.groups.get(group)
    if not chosen.named:
        sure(f"Remove all dead letters of {group}{chosen.words} for good?", chosen.yes)
    done = client.dead_letters.discard(group, *chosen.arguments)
    output.done(f"{done.discarded} discarded", done)
    _tell_failures(done.failures, done.discarded)


def redrive_chosen(client: popmq.Client, output: Output, group: str, chosen: Chosen, word: str) -> None:
    """Delivers them again, and prints how many; raises PartlyRefused when some of the named ones were not."""
    done = client.dead_letters.redrive(group, *chosen.arguments)
    output.done(f"{done.redriven} {word}", done)
    _tell_failures(done.failures, done.redriven)


def _tell_failures(failures: Sequence[popmq.RedriveFailure], done: int) -> None:
    if failures:
        failed: list[object] = [failure.error for failure in failures]
        raise popmq.errors.PartlyRefused([*failed, *[None] * done])


def _show(delivery: popmq.Delivery) -> None:
    letter = delivery.dead_letter
    key = f" · key {delivery.key}" if delivery.key else ""
    click.secho(visible.line(f"#{delivery.offset} · message {delivery.message_id}{key}"), fg="cyan")
    if letter:
        click.echo(f"  from     {letter.topic}, queue {letter.queue} offset {letter.offset}")
        last = visible.line(letter.last_client)
        tries = "1 attempt" if letter.attempts == 1 else f"{letter.attempts} attempts"
        click.echo(f"  died     {moment(letter.dead_ms)} after {tries}, last by {last}")
        _part("reason", letter.reason or "no reason given")
    body = text_of(delivery.body)
    _part("body", f"{len(delivery.body)} bytes" if body is None else body[:BODY_SHOWN_MAX])


def _part(name: str, text: str) -> None:
    """A text below its name; its further lines are indented, so that none is taken for a line of ours."""
    first, *rest = text.splitlines() or [""]
    click.echo(f"  {name:7}  {visible.line(first)}")
    for line in rest:
        click.echo(f"           {visible.line(line)}")
