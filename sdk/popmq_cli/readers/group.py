"""`popmq group …`: the control plane of groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import click

import popmq
from popmq_cli.readers.fair_keys import fair_keys_of, fair_text, names_fair_keys
from popmq_cli.shared.asking import DURATION, asks, by_topic, kept, sure
from popmq_cli.shared.completing import groups
from popmq_cli.shared.moments import moment, moment_of
from popmq_cli.shared.output import Output, Row, counted, seconds

COLUMNS = ["NAME", "ATTEMPTS#", "LEASE#", "SHARE#", "CREATED"]
STATS_COLUMNS = [
    "TOPIC",
    "READY#",
    "IN FLIGHT#",
    "RETRY#",
    "BACKOFF#",
    "WAITING#",
    "DEAD#",
    "ACKED#",
    "FILTERED#",
    "EXPIRED#",
]
KEYS_COLUMNS = ["TOPIC", "BUSIEST KEYS", "WAITING#", "IN FLIGHT#"]
READS_COLUMNS = ["TOPIC", "LAST READ", "EXPIRES"]
SUBSCRIPTION_COLUMNS = ["TOPIC", "MODE", "SHARE#", "FILTER"]


#: The options of turns by key.
FAIR_KEYS = (
    click.option("--fair-key", metavar="KEY", help='Turns by key: "property:NAME", or "key": the first key.'),
    click.option("--no-fair-keys", is_flag=True, help="No turns by key."),
    click.option("--fair-label", metavar="SEPARATOR", help='Turns by label, what comes before "/", then by key.'),
    click.option("--key-in-flight-max", type=click.IntRange(0), help="Leased messages of one key; 0: no limit."),
    click.option("--key-rate", type=click.IntRange(0), help="Messages of one key a second; 0: no limit."),
    click.option(
        "--key-limits",
        multiple=True,
        metavar="KEY=IN_FLIGHT,RATE",
        help='Limits of one key instead of those: "acme=100,0".',
    ),
)


@click.group()
def group() -> None:
    """Create, change, show and delete groups."""


def _durations(context: click.Context, option: click.Parameter, text: str | None) -> list[float] | None:
    """Durations with commas between them."""
    return None if text is None else [DURATION.convert(each.strip(), option, context) for each in text.split(",")]


BACKOFF = click.option(
    "--backoff",
    metavar="DURATIONS",
    callback=_durations,
    help='Delays before attempt 2, 3, …: "10s,1m,10m".  [default: 10s … 2h]',
)


def settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """The settings of a group, None when not given."""
    options = [
        click.option(
            "--max-attempts", type=click.IntRange(1), help="Deliveries before the dead-letter topic.  [default: 17]"
        ),
        BACKOFF,
        click.option("--invisible", type=DURATION, help="Lease of a pop that asks for none.  [default: 1m]"),
        click.option(
            "--share-number",
            type=int,
            help="0: each client pops all queues; n: 1 + n clients share a queue.  [default: 0]",
        ),
        click.option(
            "--start",
            help='Where it begins: "earliest", "latest", or a time like 2026-01-31T12:00.  [default: earliest]',
        ),
        click.option(
            "--exclusive-owner/--no-exclusive-owner",
            default=None,
            help="No other client pops messages that owners hold.",
        ),
        click.option("--fifo/--no-fifo", default=None, help="Asks clients to deliver messages one after another."),
        click.option("--in-flight-max", type=click.IntRange(1), help="Leased messages in one queue.  [default: 10000]"),
        click.option(
            "--stop-on-failure/--no-stop-on-failure",
            default=None,
            help="FIFO: a message without an attempt left stops its message group.",
        ),
        click.option(
            "--lite-exclusive/--no-lite-exclusive",
            default=None,
            help="LITE: a lite topic belongs to the client that subscribed to it last.",
        ),
        click.option(
            "--consume-enable/--no-consume-enable", default=None, help="Whether it may pop and pull.  [default: yes]"
        ),
        click.option(
            "--subscription-expiry",
            type=DURATION,
            metavar="DURATION",
            help="Its subscription to a topic expires after this time without a read; 0s: never.  [default: 90d]",
        ),
        *FAIR_KEYS,
        click.option(
            "--snoozes-max", type=click.IntRange(1), help="How often one message may be snoozed.  [default: 1000]"
        ),
        click.option(
            "--dead-letter-expired/--no-dead-letter-expired",
            default=None,
            help="Messages whose ttl is over become dead letters.  [default: they are dropped]",
        ),
        click.option(
            "--results-keep",
            type=DURATION,
            metavar="DURATION",
            help="How long results of its messages are kept; 0s: not at all, and what is kept goes.  [default: 0s]",
        ),
        click.option(
            "--filter", "tags", multiple=True, metavar="TOPIC=TAGS", help='Only these: "orders=a || b"; * = all.'
        ),
        click.option("--sql", "sqls", multiple=True, metavar="TOPIC=SQL92", help='Only these: "orders=amount > 100".'),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@group.command()
@click.argument("name")
@settings
@asks
def create(client: popmq.Client, output: Output, name: str, **given: Any) -> None:
    """Create a group. If it exists with the same settings the command succeeds, so scripts may run twice.

    A group reads every message of a topic once; groups do not affect each other. A group gets its start position in a
    topic when it first names the topic, for example by a pop.

    \b
    Examples:
      popmq group create billing
      popmq group create mail --max-attempts 3 --backoff 10s,1m
      popmq group create eu --sql "orders=region = 'eu'" --filter "parcels=eu || ch"
      popmq group create tenants --fair-key property:tenant --key-in-flight-max 20
    """
    filters = _filters(given)
    made = client.groups.create(name, **_settings(given, fair_keys_of(given, None)))
    try:
        _set_filters(client, name, filters)
    except popmq.PopMQError:
        output.note(f"group {name} was created, without the filter that is refused")
        raise
    output.done(f"group {made.name}: at most {counted(made.max_attempts, 'attempt')}", made)


@group.command()
@click.argument("name", shell_complete=groups)
@kept(settings)
@asks
def update(client: popmq.Client, output: Output, name: str, **given: Any) -> None:
    """Change settings; others stay.

    A new filter applies from the next pop on, also to messages that are to be retried.

    \b
    Examples:
      popmq group update billing --max-attempts 5 --invisible 5m
      popmq group update billing --filter "orders=paid || refunded"
      popmq group update billing --filter "orders=*"
      popmq group update billing --no-consume-enable
      popmq group update billing --results-keep 1h
    """
    filters = _filters(given)
    before = client.groups.get(name).fair_keys if names_fair_keys(given) else None
    changed = client.groups.update(name, **_settings(given, fair_keys_of(given, before)))
    _set_filters(client, name, filters)
    output.done(f"group {changed.name} is changed", changed)


@group.command("list")
@asks
def list_(client: popmq.Client, output: Output) -> None:
    """Show all groups, by name.

    \b
    Examples:
      popmq group list
      popmq group list --json | jq -r .name
    """
    output.listing("Groups", COLUMNS, client.groups.list(), _row)


@group.command()
@click.argument("name", shell_complete=groups)
@asks
def describe(client: popmq.Client, output: Output, name: str) -> None:
    """Show one group with its settings, and how it reads each topic.

    The topics are those that the group has named. With --json it prints one object of group, subscriptions and stats.

    \b
    Examples:
      popmq group describe billing
    """
    shown, read, numbers = (
        client.groups.get(name),
        client.groups.subscriptions(name),
        client.broker.stats(group=name).groups,
    )
    if output.as_json:
        output.objects([{"group": shown, "subscriptions": read, "stats": numbers}])
        return
    output.fields(f"Group {name}", _fields(shown))
    if read:
        output.table("", SUBSCRIPTION_COLUMNS, [subscription_row(row) for row in read])
    output.table("", STATS_COLUMNS, [_stats_row(row) for row in numbers])
    if keys := [(row.topic, key.key, key.waiting, key.in_flight) for row in numbers for key in row.busiest_keys]:
        output.table("", KEYS_COLUMNS, keys)
    output.table("", READS_COLUMNS, [_reads_row(row) for row in numbers])


@group.command()
@click.argument("name", shell_complete=groups)
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def delete(client: popmq.Client, output: Output, name: str, yes: bool) -> None:
    """Delete a group: its positions, leases, retries and dead letters.

    \b
    Examples:
      popmq group delete billing --yes
    """
    client.groups.get(name)
    sure(f"Delete group {name}, with its positions and dead letters?", yes)
    client.groups.delete(name)
    output.note(f"group {name} is deleted")


def _row(group: popmq.Group) -> Row:
    return group.name, group.max_attempts, seconds(group.invisible), group.share_number, moment(group.created_ms)


def _stats_row(row: popmq.GroupStats) -> Row:
    numbers = row.ready, row.in_flight, row.retry, row.backoff, row.waiting, row.dead, row.acked, row.filtered
    return row.topic, *numbers, row.expired


def _reads_row(row: popmq.GroupStats) -> Row:
    read = "not since the start" if row.read_ms == 0 else moment(row.read_ms)
    return row.topic, read, moment(row.expires_ms) if row.expires_ms else "–"


def subscription_row(read: popmq.Subscription) -> Row:
    """How a group reads one topic."""
    return read.topic, read.mode, read.share_number, read.sql or read.tag or "everything"


def _fields(group: popmq.Group) -> dict[str, Any]:
    return {
        "max attempts": group.max_attempts,
        "lease": seconds(group.invisible),
        "backoff": ", ".join(seconds(delay) for delay in group.backoff),
        "share number": group.share_number,
        "start": place_text(group.start),
        "exclusive owner": "yes" if group.exclusive_owner else "no",
        "fifo": "yes" if group.fifo else "no",
        "in flight": f"at most {group.in_flight_max:,} a queue" if group.in_flight_max else "–",
        "on failure": "stop its message group" if group.stop_on_failure else "dead letter",
        "lite exclusive": "yes" if group.lite_exclusive else "no",
        "consume enable": "yes" if group.consume_enable else "no",
        "fair keys": fair_text(group.fair_keys),
        "expiry": f"{seconds(group.subscription_expiry)} without a read" if group.subscription_expiry else "never",
        "snoozes": f"at most {group.snoozes_max:,} of a message" if group.snoozes_max else "–",
        "expired messages": "dead letters" if group.dead_letter_expired else "dropped",
        "results": f"kept {seconds(group.results_keep)}" if group.results_keep else "not kept",
        "created": moment(group.created_ms),
    }


def _filters(given: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The filter for each topic; removes these options from `given`."""
    tags, sqls = by_topic(given.pop("tags"), "--filter"), by_topic(given.pop("sqls"), "--sql")
    if twice := tags.keys() & sqls.keys():
        raise click.UsageError(f"--filter and --sql are both given for {', '.join(sorted(twice))}")
    return {
        **{topic: {"tag": text} for topic, text in tags.items()},
        **{topic: {"sql": text} for topic, text in sqls.items()},
    }


def _set_filters(client: popmq.Client, group: str, filters: dict[str, dict[str, str]]) -> None:
    for topic, expression in filters.items():
        client.groups.set_filter(topic, group, **expression)


def _settings(given: dict[str, Any], fair_keys: popmq.FairKeys | Literal[False] | None) -> dict[str, Any]:
    """The given settings, as parameters of the client's methods. `fair_keys` None: they are not given."""
    given = given | {"fair_keys": fair_keys}
    known = {name: value for name, value in given.items() if value is not None}
    if "start" in known:
        known["start"] = start_of(known["start"], "--start")
    return known


def place_text(start: popmq.topic.Start) -> str:
    """Where to begin, as start_of reads it."""
    return moment(round(start.timestamp() * 1000)) if isinstance(start, datetime) else str(start)


def start_of(text: str, option: str) -> popmq.topic.Place:
    """Where to begin: "earliest", "latest", or a time that is over. Raises BadParameter."""
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]  # it is one of the literals
    if re.fullmatch(r"[-+]?\d+(\.\d+)?", text):
        raise click.BadParameter(
            f"{text} is no place: write {text.lstrip('-+')}s for so many seconds ago, or a time", param_hint=option
        )
    now = datetime.now().astimezone()
    try:
        found = moment_of(text, now)
    except ValueError as error:
        raise click.BadParameter(f'neither "earliest" nor "latest", and {error}', param_hint=option) from None
    if found > now:
        raise click.BadParameter(
            f"{text} is in the future: what is sent until then would be skipped; write a time that is over, or latest",
            param_hint=option,
        )
    return found
