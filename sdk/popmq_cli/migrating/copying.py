"""Copies the messages of a topic, each once: those that are visible, and those that are delayed.

The target is the only record of what is copied: each copy has its origin in the property MARK, and a run that follows
a kill reads the marks first. So a message that a killed run has stored is not copied again, but for those of one
request that the target stores after the next run has read its marks.

One request is in flight at a time, and the messages of a queue go in its order. So message groups keep theirs.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import popmq
from popmq_cli.migrating.brokers import MARK, Migration, Place
from popmq_cli.shared.rows import fields_of, message_of

#: Messages, and bytes of bodies, of one request to the target.
BATCH, BATCH_BYTES = 1_000, 4 << 20
#: Messages of one page of a queue, and the bytes that the pages of all queues may have in memory.
PAGE, PAGES_BYTES, PAGE_BYTES_MAX, PAGE_BYTES_MIN = 1_000, 64 << 20, 3 << 20, 64 << 10
#: Delayed messages that are sent at once, before each is recalled.
DELAYED_BATCH = 100

#: Gets the number of messages that are copied.
Tell = Callable[[int], None]
#: Queue → offset before which messages are copied.
Ends = dict[int, int]


def copy_of(message: popmq.Delivery, mark: str) -> popmq.Message:
    """What is sent to the target. It is visible at once: so is the original."""
    copied = message_of(fields_of(message))
    return replace(copied, properties={**copied.properties, MARK: mark})


def copy_visible(migration: Migration, stages: Sequence[Ends], tell: Tell) -> None:
    """Copies what the target does not have, stage by stage; the queues go through a stage side by side.

    The target places messages in the queues of its choice. Where a group is in the source must be a place there too:
    therefore all that it has finished goes first, whatever the queue, and what it holds goes last of this.
    """
    with ThreadPoolExecutor(1, "popmq-migrate") as sending:
        batches, begins = _Batches(migration, sending, tell), Ends()
        for ends in stages:
            queues = [_missing(migration, queue, begins.get(queue, 0), end) for queue, end in ends.items()]
            for message in heapq.merge(*queues, key=_Progress(begins, ends)):
                batches.add(message)
            begins = ends
        batches.flush()


class _Progress:
    """The part of its queue's stage that is before a message: where it stands among those of other queues."""

    def __init__(self, begins: Ends, ends: Ends) -> None:
        self._spans = {queue: (begins.get(queue, 0), end) for queue, end in ends.items()}

    def __call__(self, message: popmq.Delivery) -> float:
        begin, end = self._spans[message.queue]
        return (message.offset - begin) / max(1, end - begin)


def stages(migration: Migration, positions: Sequence[Ends]) -> list[Ends]:
    """Up to where the slowest group is, then the next one, and so on; at last to the end of the source."""
    ends = {row.queue: row.max_offset for row in migration.source.offsets.query(migration.name)}
    found, reached = list[Ends](), dict.fromkeys(ends, 0)
    for position in sorted(positions, key=lambda each: sum(each.values())):
        reached = {queue: max(reached[queue], min(end, position.get(queue, 0))) for queue, end in ends.items()}
        found.append(reached)
    return [*found, ends]


def _missing(migration: Migration, queue: int, begin: int, end: int) -> Iterator[popmq.Delivery]:
    """The messages of a part of a queue of the source that are not copied."""
    bytes_max = max(PAGE_BYTES_MIN, min(PAGE_BYTES_MAX, PAGES_BYTES // migration.topic.queues))
    offset = migration.copied.next_missing(Place(queue, begin))
    while offset < end:
        page = migration.source.pull(
            migration.name,
            "",
            queue,
            offset,
            min(PAGE, end - offset),
            max_bytes=bytes_max,
            topic_created_ms=migration.topic.created_ms,
        )
        for delivery in page.deliveries:
            place = Place(queue, delivery.offset)
            if delivery.message_id in migration.delayed_ids:
                migration.sent_early[delivery.message_id] = place
            elif place not in migration.copied:
                yield delivery
        if page.next_offset <= offset:
            return
        offset = migration.copied.next_missing(Place(queue, page.next_offset))


class _Batches:
    """Gathers messages into requests; the next one is gathered while one is in flight."""

    def __init__(self, migration: Migration, sending: ThreadPoolExecutor, tell: Tell) -> None:
        self._migration = migration
        self._sending = sending
        self._tell = tell
        self._originals: list[popmq.Delivery] = []
        self._copies: list[popmq.Message] = []
        self._bytes = 0
        self._in_flight: tuple[list[popmq.Delivery], Future[list[popmq.SendReceipt]]] | None = None

    def add(self, original: popmq.Delivery) -> None:
        """Sends what was added when it is enough for a request."""
        self._originals.append(original)
        self._copies.append(copy_of(original, self._migration.mark(_place(original))))
        self._bytes += len(original.body)
        if len(self._originals) >= BATCH or self._bytes >= BATCH_BYTES:
            self._send()

    def flush(self) -> None:
        """Sends what was added; it is on the target's disk when this returns."""
        if self._originals:
            self._send()
        self._land()

    def _send(self) -> None:
        self._land()
        sent = self._sending.submit(self._migration.target.send, self._migration.name, self._copies)
        self._in_flight = (self._originals, sent)
        self._originals, self._copies, self._bytes = [], [], 0

    def _land(self) -> None:
        """Waits for the request in flight. Raises PartlyRefused, with the place of the first message at fault."""
        if self._in_flight is None:
            return
        (originals, sent), self._in_flight = self._in_flight, None
        try:
            sent.result()
        except popmq.errors.PartlyRefused as partly:
            self._note(each for index, each in enumerate(originals) if index not in partly.errors)
            index, first = next(iter(partly.errors.items()))
            place = _place(originals[index])
            raise Refused(partly, f"queue {place.queue} offset {place.offset}", first) from None
        self._note(iter(originals))
        self._tell(self._migration.copied.count)

    def _note(self, originals: Iterator[popmq.Delivery]) -> None:
        for each in originals:
            self._migration.copied.add(_place(each))


class Refused(popmq.errors.PartlyRefused):
    """The target refused messages; the others of the request are copied."""

    def __init__(self, partly: popmq.errors.PartlyRefused, where: str, first: popmq.PopMQError) -> None:
        super().__init__(partly.results)
        count = len(partly.errors)
        self.message = f"the target refused {count} of the messages; the first one, {where}: {first.message}"
        self.action = f"{first.action}; then run it again, which copies only what is missing"


def _place(message: popmq.Delivery) -> Place:
    return Place(message.queue, message.offset)


def move_delayed(migration: Migration) -> int:
    """Sends delayed messages to the target with their time, and recalls each on the source; returns how many.

    One that becomes visible on the source before it is recalled is not copied again: the target knows its id. A target
    that does not list delayed messages gets them one by one: then a kill leaves at most one of them twice.
    """
    if migration.topic.type in ("NORMAL", "LITE") or not moves_delayed(migration.source.info()):
        return 0
    batch = 1
    if "list_delayed" not in migration.target.info().lacking:
        known = migration.target.messages.list_delayed(migration.name, max_messages=1_000_000).messages
        migration.delayed_ids.update(row.message_id for row in known)
        batch = DELAYED_BATCH
    moved = 0
    while rows := migration.source.messages.list_delayed(migration.name, max_messages=batch, whole=True).messages:
        new = [row for row in rows if row.message_id not in migration.delayed_ids]
        if new:
            migration.target.send(migration.name, [_later(migration, row) for row in new])
            migration.delayed_ids.update(row.message_id for row in new)
        for row in rows:
            with contextlib.suppress(popmq.errors.MessageNotFound):
                migration.source.messages.recall(migration.name, row.recall_handle)
        moved += len(rows)
    return moved


def moves_delayed(source: popmq.BrokerInfo) -> bool:
    """Whether delayed messages can be taken from a broker before their time."""
    return not {"recall", "list_delayed"} & set(source.lacking)


def _later(migration: Migration, row: popmq.DelayedMessage) -> popmq.Message:
    if row.message is None:
        raise popmq.errors.PermissionDenied(
            f"the access key may not read delayed messages of topic {migration.name!r} on the source",
            code="PERMISSION_DENIED",
            action="call the source with a key that may receive the topic",
        )
    return replace(copy_of(row.message, migration.delayed_mark(row.message_id)), deliver_at=row.due_ms / 1000)
