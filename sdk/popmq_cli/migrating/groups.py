"""The groups of a migrated topic: what each has not finished on the source, and where it begins on the target.

    unfinished   from the committed offset of each queue on, and what is in the retry topic: before this is asked, the
                 group's leases and backoffs end (`settle`), so that what they held is there too
    position     in each queue of the target, the first copy that is unfinished, or message of a producer

The position is before all unfinished messages. What lies between them is delivered though the group has finished it on
the source: these are the repeated ones.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import click

import popmq
from popmq_cli.migrating.brokers import Copied, Migration, Place, Stored
from popmq_cli.migrating.copying import Ends
from popmq_cli.migrating.obstacles import group_settings, lacking_of, subscription, tells_held, topic_settings

#: Rows of one request.
ROWS = 4096
#: Seconds in which a lease that was ended is over, and between two looks.
END_S, LOOK_S = 60.0, 0.05
#: Seconds after which a target sees what it has stored, if it does not at once: some milliseconds on a cluster.
SEEN_S = 0.2


@dataclass
class Unfinished:
    """What a group has not finished on the source: everything from `committed` on, and `retries`."""

    committed: Ends
    retries: set[Place]
    count: int

    def __contains__(self, place: Place) -> bool:
        return place.offset >= self.committed.get(place.queue, 0) or place in self.retries


@dataclass
class Arrived:
    """A group on the target."""

    group: str
    unfinished: Unfinished
    begins: Ends  # its offset in each queue that it has not begun to read: moved forward to the first unfinished one
    passed: Ends  # the same of the other queues, which stay where they are
    first: Ends = field(default_factory=dict)  # the first unfinished message of each queue
    found: int = 0
    repeated: int = 0

    def see(self, stored: Stored, origin: Place | None, twice: bool) -> None:
        """Counts one message of the target; they come in the order of each queue."""
        queue, offset = stored.place
        unfinished = origin is None or origin in self.unfinished
        if unfinished:
            self.first.setdefault(queue, offset)
        ahead = queue in self.first if queue in self.begins else offset >= self.passed[queue]
        if origin is None:
            return  # it is of a producer, or was delayed: no group has had it
        if unfinished and not twice:
            self.found += 1
        elif ahead:
            self.repeated += 1


def readers(client: popmq.Client, topic: str) -> list[popmq.GroupStats]:
    """The groups that have read a topic."""
    return [row for row in client.broker.stats(topic).groups if row.topic == topic]


def left(row: popmq.GroupStats) -> int:
    """What a group has to do."""
    return sum(each or 0 for each in (row.ready, row.in_flight, row.retry, row.backoff, row.waiting))


def committed(client: popmq.Client, topic: str, group: str) -> Ends:
    """The next offset of a group in each queue."""
    return {row.queue: max(row.committed, row.min_offset) for row in client.offsets.query(topic, group)}


# ── On the target, before anything is copied ─────────────────────────────────────────────────────────────────────────


def prepare(migration: Migration, rows: Sequence[popmq.GroupStats]) -> None:
    """Creates what the target does not have: the topic and its groups, each with its settings, mode and filter.

    A group that is new in the topic begins before its first message, so that it passes over no copy whoever reads
    first. Raises ClickException for a topic of another type.
    """
    target = migration.target
    lacking = lacking_of(migration)
    try:
        there = target.topics.get(migration.name)
    except popmq.errors.TopicNotFound:
        there = target.topics.create(migration.name, **topic_settings(migration.topic, lacking)[0])
    if there.type != migration.topic.type:
        raise click.ClickException(
            f"the topic {migration.name} is {migration.topic.type} on the source and {there.type} on the target"
        )
    for row in rows:
        try:
            target.groups.get(row.group)
        except popmq.errors.GroupNotFound:
            group = migration.source.groups.get(row.group)
            target.groups.create(row.group, **group_settings(group, lacking)[0])
        _subscribe(migration, row.group)


def _subscribe(migration: Migration, group: str) -> None:
    name, target = migration.name, migration.target
    reads = subscription(migration.source, name, group)
    if any(row.committed < 0 for row in target.offsets.query(name, group)):
        target.groups.set_consume_mode(name, group, reads.mode, reads.share_number, "earliest")
    if "filters" in target.info().lacking:
        return
    there = subscription(target, name, group)
    if (reads.tag or reads.sql) and not (there.tag or there.sql):
        target.groups.set_filter(name, group, tag=reads.tag or None, sql=reads.sql or None)


# ── On the source, after the copy ────────────────────────────────────────────────────────────────────────────────────


def settle(migration: Migration, group: str) -> None:
    """Ends the group's leases and backoffs: what they hold is in its retry topic, and none of its consumers pops.

    Where the source does not tell what a group holds, its consumers are stopped already (obstacles.py).
    """
    source, name = migration.source, migration.name
    if not tells_held(source.info().lacking):
        return
    reads = subscription(source, name, group)
    if reads.mode == "POP":
        source.groups.set_consume_mode(name, group, "PULL", reads.share_number)
    ends = time.monotonic() + END_S
    while leases := source.leases.list(group, name, ROWS).leases:
        if time.monotonic() > ends:
            raise click.ClickException(
                f"the leases of the group {group} in {name} do not end: popmq leases list --group {group}"
            )
        for lease in leases:
            with contextlib.suppress(popmq.errors.HandleLapsed):
                source.leases.end(group, lease.lease_id)
        time.sleep(LOOK_S)


def unfinished(migration: Migration, group: str) -> Unfinished:
    """What a group has not finished on the source, after `settle`."""
    (row,) = (each for each in readers(migration.source, migration.name) if each.group == group)
    return Unfinished(committed(migration.source, migration.name, group), _retries(migration, group), left(row))


def position(migration: Migration, group: str) -> Ends:
    """Where a group is in each queue of the source: at the first message that it is known not to have finished.

    It may go on meanwhile, and hold leases before this: the position decides only what is copied first.
    """
    found = committed(migration.source, migration.name, group)
    for queue, offset in _retries(migration, group):
        found[queue] = min(found[queue], offset)
    return found


def _retries(migration: Migration, group: str) -> set[Place]:
    """Where the messages of a retry topic come from.

    An engine may tell their places in the retry topic instead: then each is looked up by its id. One that does not tell
    what a group holds may have a retry topic only for groups that pull.
    """
    entries = list[popmq.Delivery]()
    with contextlib.suppress(*() if tells_held(migration.source.info().lacking) else (popmq.errors.BadRequest,)):
        entries += _entries(migration.source, f"%RETRY%{group}+{migration.name}")
    if not entries or _is_original(migration, entries[0]):
        return {Place(each.queue, each.offset) for each in entries}
    ids = {each.message_id for each in entries}
    look_up = migration.source.messages.look_up
    return {
        Place(found.queue, found.offset)
        for each in ids
        for found in look_up(migration.name, message_id=each).deliveries
    }


def _entries(client: popmq.Client, retry_topic: str) -> Iterator[popmq.Delivery]:
    offset = 0
    while (page := client.messages.browse(retry_topic, 0, offset, ROWS)).deliveries:
        yield from page.deliveries
        offset = page.next_offset


def _is_original(migration: Migration, entry: popmq.Delivery) -> bool:
    page = migration.source.pull(migration.name, "", entry.queue, entry.offset, 1)
    return [each.message_id for each in page.deliveries] == [entry.message_id]


# ── On the target, at last ───────────────────────────────────────────────────────────────────────────────────────────


def arrive(migration: Migration, held: dict[str, Unfinished]) -> list[Arrived]:
    """Moves each group of the target to its first unfinished message, and counts what it finds and gets again.

    A queue that a group has begun to read there stays where it is: nothing in it is lost, but more may be repeated.
    """
    target, name = migration.target, migration.name
    if "read_your_writes" in target.info().weaker:
        time.sleep(SEEN_S)
    arrived = [_arriving(migration, group, each) for group, each in held.items()]
    ends, seen = target.offsets.query(name), Copied()
    for stored in migration.stored(ends):
        origin = stored.origin
        if stored.delayed_id is not None:
            origin = migration.sent_early.get(stored.delayed_id)
        twice = origin is not None and origin in seen
        if origin is not None:
            seen.add(origin)
        for each in arrived:
            each.see(stored, origin, twice)
    for each in arrived:
        wanted = {row.queue: each.first.get(row.queue, row.max_offset) for row in ends if row.queue in each.begins}
        moved = {queue: offset for queue, offset in wanted.items() if offset > each.begins[queue]}
        if moved:
            target.offsets.reset(name, each.group, moved)
    return arrived


def _arriving(migration: Migration, group: str, held: Unfinished) -> Arrived:
    rows = migration.target.offsets.query(migration.name, group)
    begins = {row.queue: row.committed for row in rows if row.committed <= row.min_offset}
    passed = {row.queue: row.committed for row in rows if row.queue not in begins}
    return Arrived(group, held, begins, passed)
