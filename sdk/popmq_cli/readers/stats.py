"""`popmq stats`: numbers of ready, leased, retried and dead messages; once, or repeatedly."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

import popmq
from popmq_cli.shared.asking import DURATION, asks
from popmq_cli.shared.completing import groups, topics
from popmq_cli.shared.output import Output, seconds, size

GROUP_COLUMNS = [
    "GROUP",
    "TOPIC",
    "READY#",
    "IN FLIGHT#",
    "RETRY#",
    "BACKOFF#",
    "WAITING#",
    "DEAD#",
    "OLDEST#",
    "POP/S#",
    "ACK/S#",
    "PARKED#",
]
TOPIC_COLUMNS = ["TOPIC", "MESSAGES#", "BYTES#", "QUEUES#", "DELAYED#", "HALF#", "SENT/S#"]
CLEAR = "\x1b[H\x1b[2J"


@click.command()
@click.argument("topic", default="", shell_complete=topics)
@click.argument("group", default="", shell_complete=groups)
@click.option("--topic", "of_topic", default="", help="Only this topic.")
@click.option("--group", "of_group", default="", help="Only this group, of TOPIC or of all.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("--every", type=DURATION, default=2.0, metavar="DURATION", help="With --watch: the pause.  [default: 2s]")
@click.option("--times", type=click.IntRange(1), help="With --watch: end after this many times.")
@asks
def stats(
    client: popmq.Client,
    output: Output,
    topic: str,
    group: str,
    of_topic: str,
    of_group: str,
    watch: bool,
    every: float,
    times: int | None,
) -> None:
    """Show numbers of groups, topics and the store.

    Without arguments it shows all groups and topics, else TOPIC, or GROUP in TOPIC.

    READY + RETRY + BACKOFF + IN FLIGHT + WAITING is the number of messages that a group has not finished in a topic.
    WAITING are messages of FIFO topics whose message group is locked. PARKED are pops that wait for messages. Rates are
    of the last minute. The broker's engine does not know a number that is shown as –.

    \b
    Examples:
      popmq stats
      popmq stats orders billing
      popmq stats --group billing
      popmq stats --watch
      popmq stats --json | jq '.groups[].ready'
    """
    if (topic and of_topic) or (group and of_group):
        raise click.UsageError("name the topic and the group once: as arguments or as options")
    topic, group = topic or of_topic, group or of_group
    shown = 0
    while True:
        numbers = client.broker.stats(topic, group)
        if watch and sys.stdout.isatty() and not output.as_json:
            click.echo(CLEAR, nl=False)
        _show(output, numbers)
        shown += 1
        if not watch or shown == times:
            return
        time.sleep(every)


def _show(output: Output, numbers: popmq.Stats) -> None:
    if output.as_json:
        output.objects([numbers])
        return
    output.table("Groups", GROUP_COLUMNS, [_group_row(row) for row in numbers.groups])
    if blocked := sum(row.dead_blocked or 0 for row in numbers.groups):
        output.note(f"{blocked} of those in flight are dead letters for which the store has no room")
    output.table("Topics", TOPIC_COLUMNS, [_topic_row(row) for row in numbers.topics])
    store = numbers.store
    output.table(
        "Store",
        ["USED#", "OF#", "DISK FREE#", "COMMITS#", "FSYNCS#"],
        [(size(store.used_bytes), size(store.map_bytes), size(store.disk_free_bytes), store.commits, store.fsyncs)],
    )


def _group_row(row: popmq.GroupStats) -> tuple[Any, ...]:
    return (
        row.group,
        row.topic,
        row.ready,
        row.in_flight,
        row.retry,
        row.backoff,
        row.waiting,
        row.dead,
        seconds(row.oldest_age),
        f"{row.popped_per_s:.1f}",
        f"{row.acked_per_s:.1f}",
        row.waiters,
    )


def _topic_row(row: popmq.TopicStats) -> tuple[Any, ...]:
    queues, rate = len(row.queues), f"{row.sent_per_s:.1f}"
    return row.topic, row.messages, size(row.bytes), queues, row.delayed, row.half, rate
