"""Ends half messages soon after their transaction has ended: in the background, many in one request.

    a box is left ──▶ open ── the database is asked ──┬─ committed, rolled back ─▶ EndTransaction ─▶ ended
                        ▲                             ├─ not known: left to the broker's check-backs
                        │                             │
                        └─────────────────────────────┴─ not ended yet: asked again after a fifth of the time for which
                                                         it has been open, at least 2 ms, at most 1 s

So nothing has to be told when the user's transaction ends, and what the database says is what counts: a COMMIT that a
failed statement has made a rollback is one. If this process dies, the broker asks one that answers (`answer`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from popmq._async.concurrency import BackgroundLoop, Event, Lock
from popmq._async.outbox.asking import Asking
from popmq._outbox.libraries import leaves_marker
from popmq._outbox.verdicts import Verdict
from popmq.errors import PartlyRefused, PopMQError, TransactionNotFound, TryLater
from popmq_http2.elapsed import monotonic

if TYPE_CHECKING:
    from popmq.message import SendReceipt
    from popmq.transaction import Resolution

log = logging.getLogger("popmq.outbox")

#: Seconds between two questions about a transaction.
SOONEST_S, LATEST_S = 0.002, 1.0
#: Transactions that one question is about.
ASKED_AT_ONCE = 500
#: Seconds between two deletions of markers: each is a transaction, which waits for the user's.
DELETE_EVERY_S = 1.0
#: Markers that wait to be deleted; those above it stay, a row each.
MARKERS_MAX = 10_000


@dataclass(eq=False)
class Sent:
    """Half messages of one send, whose transaction may not have ended."""

    topic: str
    place: str
    receipts: Sequence[SendReceipt]
    since: float = field(default_factory=monotonic)
    due: float = 0.0

    def wait(self) -> None:
        """Sets the time of the next question."""
        now = monotonic()
        self.due = now + min(max((now - self.since) / 5, SOONEST_S), LATEST_S)


class Finishing:
    """The half messages of one outbox in this process that are not ended."""

    def __init__(self, client: Any, asking: Asking) -> None:
        self._client = client
        self._asking = asking
        self._lock = Lock()
        self._open: list[Sent] = []
        self._idle = Event()
        self._idle.set()
        self._markers: list[str] = []
        self._delete_at = 0.0
        self._worker = BackgroundLoop("popmq-outbox", self._step)

    def add(self, sent: Sequence[Sent]) -> None:
        """Ends them when their transaction has ended."""
        if sent:
            self._worker.bind()
            with self._lock:
                self._open += sent
                self._idle.clear()
            self._worker.wake()

    async def flush(self, seconds: float) -> bool:
        """Asks about all of them now, waits until they are ended, at most so long; returns whether they are."""
        with self._lock:
            for sent in self._open:
                sent.due = 0.0
        self._worker.wake()
        return await self._idle.wait(seconds)

    async def stop(self) -> None:
        """Leaves to the check-backs what is open, and deletes the markers of the others."""
        await self._worker.stop()
        await self._delete()

    async def _step(self) -> float | None:
        """Asks about those that are due, ends what has ended; the seconds until the next."""
        with self._lock:
            now = monotonic()
            due = [sent for sent in self._open if sent.due <= now][:ASKED_AT_ONCE]
        if due:
            await self._decide(due)
        if self._markers and monotonic() >= self._delete_at:
            await self._delete()
        with self._lock:
            if not self._open:
                self._idle.set()
            times = [sent.due for sent in self._open] + [self._delete_at] * bool(self._markers)
        return max(min(times) - monotonic(), 0.0) if times else None

    async def _decide(self, due: list[Sent]) -> None:
        try:
            verdicts = await self._asking.ended([sent.place for sent in due])
        except Exception as error:  # of any library: the database is away, or refuses the connection
            log.warning("an outbox cannot ask its database how %d transactions ended: %s", len(due), error)
            verdicts = [Verdict(None, "", is_open=True)] * len(due)
        for resolution in ("commit", "rollback"):
            ended = [sent for sent, verdict in zip(due, verdicts, strict=True) if verdict.resolution == resolution]
            if ended:
                await self._end(ended, resolution)
        for sent, verdict in zip(due, verdicts, strict=True):
            if verdict.is_open:
                sent.wait()
            elif verdict.resolution is None:
                log.warning("messages of %s are left to the broker's check-backs: %s", sent.topic, verdict.reason)
                self._forget(sent)

    async def _end(self, ended: list[Sent], resolution: Resolution) -> None:
        ids = [receipt.transaction_id for sent in ended for receipt in sent.receipts]
        results: list[Any]
        try:
            results = await self._client.transactions.end(ids, resolution)
        except PartlyRefused as refused:
            results = refused.results
        except PopMQError as error:
            results = [error] * len(ids)
        of_each = iter(results)
        for sent in ended:
            errors = [found for _ in sent.receipts if isinstance(found := next(of_each), PopMQError)]
            if any(isinstance(error, TryLater) for error in errors):
                sent.wait()
                continue
            self._forget(sent)
            if any(isinstance(error, TransactionNotFound) for error in errors) and resolution == "commit":
                await self._redrive(sent)
            elif errors:
                log.error("the outbox could not %s messages of %s: %s", resolution, sent.topic, errors[0])
            else:
                self._markers += [sent.place] * leaves_marker(sent.place)

    async def _redrive(self, sent: Sent) -> None:
        """The transaction committed after the broker had given its messages up."""
        ids = [receipt.message_id for receipt in sent.receipts]
        try:
            redriven = (await self._client.dead_letters.redrive("", topic=sent.topic, message_ids=ids)).redriven
        except PopMQError as error:
            log.error("messages %s of %s were given up, and their transaction committed: %s", ids, sent.topic, error)
        else:
            log.warning("%d of %d messages of %s had been given up and are visible now", redriven, len(ids), sent.topic)

    def _forget(self, sent: Sent) -> None:
        with self._lock:
            self._open.remove(sent)

    async def _delete(self) -> None:
        """Deletes markers; those that cannot be deleted now are tried again."""
        markers, self._markers = self._markers, []
        if not markers:
            return
        self._delete_at = monotonic() + DELETE_EVERY_S
        try:
            await self._asking.delete(markers)
        except Exception as error:  # of any library: the writer is busy
            log.debug("markers of an outbox are deleted later: %s", error)
            self._markers = markers[-MARKERS_MAX:]
