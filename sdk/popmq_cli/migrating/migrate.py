"""`popmq migrate`: topics with their messages and groups, from one broker to another, which goes on with them.

Producers are pointed at the target first. For each topic then:

    step      what is written, in this order                               what a kill after it leaves
    prepare   target: topic, groups; each new group reads from the start   nothing else: the source is as it was
    close     source: the topic is READ_ONLY                               sends to the source are refused
    copy      target: each message, with its origin in a property          a part; the next run reads which
              a delayed one: sent with its time, then recalled on source   sent, not recalled: the next run recalls it
    settle    source: groups that pop pull from now on, and their leases   consumers of the source are refused, with
              and backoffs end                                             WRONG_CONSUME_MODE
    arrive    target: each group moves to its first unfinished message     a group at its start reads what it has
                                                                           finished too, until the next run

Nothing is deleted on the source but the delayed messages that the target has; each step may be repeated. So a run that
was killed is started again, and does what is missing. A queue that a group has begun to read on the target is never
moved. The source is the record of what is unfinished, the target of what is copied: nothing is kept elsewhere.

To return before consumers read from the target: popmq topic update TOPIC --permission READ_WRITE, and for each group
popmq mode TOPIC GROUP pop, both on the source.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import click

import popmq
from popmq_cli.migrating import copying, groups, obstacles
from popmq_cli.migrating.brokers import Migration, connected
from popmq_cli.shared import exits
from popmq_cli.shared.asking import DURATION
from popmq_cli.shared.output import Output, counted

TIMEOUT_S = 60.0
COLUMNS = ["TOPIC", "GROUP", "COPIED#", "UNFINISHED#", "FOUND#", "REPEATED#"]
#: Seconds between two lines of progress.
TELL_S = 0.5


class Moved(NamedTuple):
    """What became of one topic; `copied` by all runs."""

    topic: str
    copied: int
    copied_now: int
    delayed_now: int
    groups: Sequence[groups.Arrived]


@click.command()
@click.option("--from", "source", required=True, metavar="BROKER", help="Has the topics: a context, or HOST:PORT.")
@click.option("--to", "target", required=True, metavar="BROKER", help="Gets them: a context, or HOST:PORT.")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--accept-weaker", is_flag=True, help="Go on although something cannot be brought along.")
@click.option("--dry-run", is_flag=True, help="Say what is in the way and how much there is; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for scripts.")
@click.option(
    "--timeout",
    type=DURATION,
    default=TIMEOUT_S,
    metavar="DURATION",
    help=f"How long a call may take.  [default: {TIMEOUT_S:g}s]",
)
@click.pass_obj
def migrate(
    shared: dict[str, object] | None,
    source: str,
    target: str,
    topics: tuple[str, ...],
    accept_weaker: bool,
    dry_run: bool,
    as_json: bool,
    timeout: float,
) -> None:
    """Bring TOPICs with their messages and groups to another broker.

    Point the producers at the target first; for FIFO topics stop them until the command has ended. Then it makes the
    topics READ_ONLY on the source, copies each message, and sets each group on the target so that nothing unfinished
    lies before it. Delayed messages go with their time. The consumers of the source end; start them on the target when
    the command has ended. If it is interrupted or killed, start it again: it copies what is missing.

    It lists what it cannot bring along, such as open half messages and settings that the target lacks, and stops unless
    you add --accept-weaker. Dead letters stay on the source. At the end it prints for each group how much was
    unfinished on the source, how much of that was found on the target, and how much is repeated there although the
    group had finished it.

    \b
    Examples:
      popmq migrate --from old --to new orders --dry-run
      popmq migrate --from old --to new orders payments
      popmq migrate --from 10.0.0.1:8081 --to 10.0.0.2:8081 orders --accept-weaker
    """
    output = Output(as_json or bool((shared or {}).get("as_json")))
    try:
        with connected(source, "--from", timeout) as one, connected(target, "--to", timeout) as other:
            obstacles.check_needed(one, "source")
            obstacles.check_needed(other, "target")
            _migrate(one, other, output, dict.fromkeys(topics), accept_weaker, dry_run)
    except popmq.errors.PopMQError as error:
        output.error(error)
        sys.exit(exits.code_of(error))


def _migrate(
    source: popmq.Client,
    target: popmq.Client,
    output: Output,
    topics: dict[str, None],
    accept_weaker: bool,
    dry_run: bool,
) -> None:
    migrations = [_begun(source, target, name) for name in topics]
    found = [each for migration in migrations for each in _in_the_way(migration)]
    for each in found:
        click.echo(f"  ! {each}", err=True)
    if dry_run:
        _show_plan(output, migrations)
        return
    if found and not accept_weaker:
        raise click.ClickException(f"{counted(len(found), 'thing')} in the way: mend them, or add --accept-weaker")
    moved = [_move(migration, output) for migration in migrations]
    _show(output, moved)
    if lost := [each for one in moved for each in one.groups if each.found < each.unfinished.count]:
        names = ", ".join(each.group for each in lost)
        click.secho(f"popmq: not all that is unfinished was found for {names}: run it again", fg="red", err=True)
        sys.exit(exits.PARTLY)


def _begun(source: popmq.Client, target: popmq.Client, name: str) -> Migration:
    """A migration that knows what the target has. Raises TopicNotFound, ClickException."""
    topic = source.topics.get(name)
    if topic.type == "LITE":
        raise click.ClickException(
            f"{name} is a LITE topic: its messages cannot be read by offset, and so not migrated"
        )
    obstacles.check_different(source, target, topic)
    migration = Migration(source, target, topic)
    with contextlib.suppress(popmq.errors.TopicNotFound):  # then `prepare` creates it
        migration.read_target()
    return migration


def _in_the_way(migration: Migration) -> list[str]:
    return obstacles.of_topic(migration, groups.readers(migration.source, migration.name))


def _move(migration: Migration, output: Output) -> Moved:
    """All steps for one topic."""
    source, name, before = migration.source, migration.name, migration.copied.count
    rows = groups.readers(source, name)
    groups.prepare(migration, rows)
    source.topics.update(name, permission="READ_ONLY")
    positions = [groups.position(migration, row.group) for row in rows]
    delayed = copying.move_delayed(migration)
    with _Progress(migration) as tell:
        copying.copy_visible(migration, copying.stages(migration, positions), tell)
    for row in rows:
        groups.settle(migration, row.group)
    held = {row.group: groups.unfinished(migration, row.group) for row in rows}
    output.note(f"{name}: {counted(migration.copied.count - before, 'message')} copied; looking at its groups")
    arrived = groups.arrive(migration, held)
    return Moved(name, migration.copied.count, migration.copied.count - before, delayed, arrived)


class _Progress:
    """Shows on a terminal how many messages are copied."""

    def __init__(self, migration: Migration) -> None:
        ends = migration.source.offsets.query(migration.name)
        self._total = sum(row.max_offset - row.min_offset for row in ends)
        self._name = migration.name
        self._told = 0.0

    def __enter__(self) -> copying.Tell:
        return self._tell if sys.stderr.isatty() else lambda copied: None

    def _tell(self, copied: int) -> None:
        if (now := time.monotonic()) - self._told >= TELL_S:
            self._told = now
            click.echo(f"\r{self._name}: copied {copied:,} of {self._total:,}", nl=False, err=True)

    def __exit__(self, *_: object) -> None:
        if self._told:
            click.echo(err=True)


def _show_plan(output: Output, migrations: Sequence[Migration]) -> None:
    plans = list[dict[str, object]]()
    for migration in migrations:
        ends = migration.source.offsets.query(migration.name)
        messages = sum(row.max_offset - row.min_offset for row in ends)
        left = [(row.group, groups.left(row)) for row in groups.readers(migration.source, migration.name)]
        plans += [
            {
                "topic": migration.name,
                "group": group,
                "messages": messages,
                "copied": migration.copied.count,
                "unfinished": unfinished,
            }
            for group, unfinished in left or [("", 0)]
        ]
    names = ["TOPIC", "GROUP", "MESSAGES#", "COPIED#", "UNFINISHED#"]
    output.listing("To migrate", names, plans, lambda plan: [each if each != "" else "–" for each in plan.values()])


def _show(output: Output, moved: Sequence[Moved]) -> None:
    if output.as_json:
        output.objects(_object(each) for each in moved)
        return
    rows = [
        (one.topic, each.group, one.copied, each.unfinished.count, each.found, each.repeated)
        for one in moved
        for each in one.groups
    ]
    rows += [(one.topic, "–", one.copied, 0, 0, 0) for one in moved if not one.groups]
    output.table("Migrated", COLUMNS, rows)


def _object(one: Moved) -> dict[str, object]:
    return {
        **one._asdict(),
        "groups": [
            {
                "group": each.group,
                "unfinished": each.unfinished.count,
                "found": each.found,
                "repeated": each.repeated,
            }
            for each in one.groups
        ],
    }
