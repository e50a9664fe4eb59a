"""The first page: the numbers of the whole broker, an hour of charts, and the things that need an operator."""

from typing import Any

import popmq
from popmq_console import charts
from popmq_console.asking import Ask
from popmq_console.numbers import backlog, sums, total
from popmq_console.pages.topics import HIDDEN
from popmq_console.views import counted

ROWS = 8


async def overview(ask: Ask) -> dict[str, Any]:
    """Sums, charts, and the groups with the oldest work."""
    stats = await ask.login.numbers.stats()
    behind = sorted(filter(backlog, stats.groups), key=lambda row: (row.oldest_age or 0.0, backlog(row)), reverse=True)
    return {
        "now": sums(stats),
        "store": stats.store,
        "topics": sum(not row.topic.startswith(HIDDEN) for row in stats.topics),
        "groups": len(await ask.client.groups.list()),  # the numbers know only those that have named a topic
        "sessions": total(row.sessions for row in stats.groups),
        **await charts.drawn(ask, charts.overview),
        "behind": [(row, backlog(row)) for row in behind[:ROWS]],
        "attention": attention(stats),
    }


def attention(stats: popmq.Stats) -> list[tuple[str, str]]:
    """(sentence, address of the page about it) for each thing that needs an operator.

    An empty address: no page of the console helps, and the sentence says what does.
    """
    found = []
    store = stats.store
    if store.map_bytes is not None and store.used_bytes > 0.7 * store.map_bytes:
        found.append((f"The store is {store.used_bytes / store.map_bytes:.0%} full; sends are refused at 85 %.", ""))
    if store.disk_free_bytes < 1 << 30:
        found.append(("The disk has less than 1 GiB free; sends need 256 MiB.", ""))
    if store.quarantined:
        found.append((f"{store.quarantined:,} stored messages do not match their checksum: run popmq check.", ""))
    dead = {row.group: row.dead for row in stats.groups if row.dead}
    if dead:
        sentence = f"{counted(sum(dead.values()), 'dead letter')} in {counted(len(dead), 'group')}."
        found.append((sentence, "/dead-letters"))
    if stopped := sum(row.stopped for row in stats.groups):
        what = "message group is" if stopped == 1 else "message groups are"
        found.append((f"{stopped:,} {what} stopped.", "/message-groups"))
    if blocked := sum(row.dead_blocked or 0 for row in stats.groups):
        found.append((f"{blocked:,} dead letters find no room in the store.", ""))
    return found
