# Written by sdk/twin.py from popmq/_async/consuming/share.py: change that one.
"""Which queues a pull consumer reads, and where it starts in them: one protocol, two implementations.

                    queues                                progress is kept            failed messages
    GroupShare      those that the broker assigns         by the broker               sent back to the broker
    EveryQueue      all: every consumer reads everything  here, in a file or memory   logged and skipped

Queues are numbers. RETRY is the number of the group's retry topic, which belongs to the client of queue 0.

Assignments reach consumers at different times, so two may want one queue. The lock decides: a consumer that takes a
queue over waits until the previous one has committed and unlocked it, so no two read it at the same time.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from popmq._calls import pop_calls, pull_calls, subscription_calls
from popmq._consuming import offsets_file
from popmq._consuming.pull_settings import LOCK_VALID_S, RETRY, Place, PullSettings
from popmq._sync.concurrency import Stop, aside
from popmq._sync.consuming.heartbeats import Reader
from popmq._sync.consuming.parts import Parts
from popmq._sync.transport.wire import Wire
from popmq._transport.call import Call
from popmq._transport.call_retries import Stopped
from popmq.errors import TryLater, WrongConsumeMode
from popmq.stats import QueueOffsets
from popmq.topic import Assignment, Start

log = logging.getLogger("popmq.consumer")

#: Seconds between two checks whether another consumer has started a new group.
BEGIN_AGAIN_S = 0.05


class Share(Protocol):
    """What an upkeep asks. What calls the broker may raise TryLater and is tried again; `stop` ends it with Stopped."""

    def open(self, changed: Callable[[], object], stop: Stop) -> None:
        """Called first. The share calls `changed` when `queues` may have another answer."""

    def queues(self, stop: Stop) -> set[int] | None:
        """The queues to read; None: not known now, keep those of before."""

    def pulls(self) -> bool:
        """Whether progress can be saved, as `queues` found it last."""

    def begun_anew(self) -> bool:
        """Whether the last `queues` found that the topic was deleted and created again."""

    def places(self, queues: Iterable[int], stop: Stop) -> dict[int, Place]:
        """Where to start in each; a queue that does not exist is left out."""

    def save(self, offsets: Mapping[int, int], topic_created_ms: int, stop: Stop) -> None:
        """Saves progress: everything below these offsets is done. Once `stop` is set, in the time that closing has.

        Raises TopicNotFound if the topic that they are of is gone, also when another one has its name.
        """

    def lock(self, queues: Iterable[int], stop: Stop) -> tuple[set[int], float]:
        """Locks them. Returns those that are locked now, and for how many seconds."""

    def unlock(self, queues: Iterable[int], stop: Stop) -> None:
        """Unlocks them, as `save`."""

    def close(self, goodbye: bool) -> None:
        """Called once, last. Without `goodbye` nothing is sent to the broker, because it is away."""


def first_offset(row: QueueOffsets, start: Start) -> int:
    """Where a reader without an offset starts."""
    if start == "earliest":
        return row.min_offset
    return row.max_offset if start == "latest" else max(row.at_timestamp, row.min_offset)


class GroupShare:
    """A share of a group's queues."""

    def __init__(self, parts: Parts, options: PullSettings) -> None:
        self._wire = parts.wire
        self._parts = parts
        self._options = options
        self._where = (options.topic, options.group)
        self._retry_topic = pull_calls.retry_topic(*self._where)
        self._reader: Reader = options.topic, "PULL", lambda: None
        self._pulls = True
        self._begun_anew = False

    def open(self, changed: Callable[[], object], stop: Stop) -> None:
        """Joins the group. A group that is new in this topic is set to pull it.

        Raises WrongConsumeMode for a group that pops it, TopicNotFound, GroupNotFound, TryLater; Stopped.
        """
        self._reader = self._options.topic, "PULL", changed
        self._parts.heartbeats.join(self._options.group, self._reader, stop)
        try:
            if (self._assignment(stop)).mode != "PULL":
                self._begin(stop, self._options.start)
            else:
                self._log_start_unused()
        except BaseException:
            self.close(True)
            raise

    def queues(self, stop: Stop) -> set[int] | None:
        """The assigned queues, or those that the user named."""
        assignment = self._assignment(stop)
        self._begun_anew = assignment.mode != "PULL" and self._is_new(stop)
        if self._begun_anew:
            log.warning(
                "topic %s was deleted and created again: group %s reads it from its first message", *self._where
            )
            self._begin(stop, "earliest")
            assignment = self._assignment(stop)
        self._log_mode(assignment.mode == "PULL")
        if not self._pulls:
            return set()
        if not assignment.known and not self._options.queues:
            return None
        if self._options.queues:
            mine = set(self._options.queues)
        elif assignment.all:
            mine = {row.queue for row in self._offsets(stop)}
        else:
            mine = set(assignment.queues)
        return mine | {RETRY} if 0 in mine else mine

    def pulls(self) -> bool:
        """The mode may be switched while consumers run."""
        return self._pulls

    def begun_anew(self) -> bool:
        """A topic that was deleted while it was read, or its group."""
        return self._begun_anew

    def places(self, queues: Iterable[int], stop: Stop) -> dict[int, Place]:
        """At the committed offset. A queue without one came to the topic later: it is read from its first message."""
        wanted = set(queues)
        rows = [(row.queue, row) for row in self._offsets(stop)] if wanted - {RETRY} else []
        if RETRY in wanted:
            call = subscription_calls.query_offsets(self._retry_topic, self._options.group, None)
            rows += [(RETRY, row) for row in self._wire.run(call, stop)]
        return {
            queue: Place(row.committed if row.committed >= 0 else row.min_offset, row.max_offset, row.topic_created_ms)
            for queue, row in rows
            if queue in wanted
        }

    def save(self, offsets: Mapping[int, int], topic_created_ms: int, stop: Stop) -> None:
        """One call for the topic, one for the retry topic."""
        queues = {queue: offset for queue, offset in offsets.items() if queue != RETRY}
        if queues:
            self._run(pull_calls.update_offsets(*self._where, queues, topic_created_ms), stop)
        if RETRY in offsets:
            entries = {0: offsets[RETRY]}
            call = pull_calls.update_offsets(self._retry_topic, self._options.group, entries, topic_created_ms)
            self._run(call, stop)

    def lock(self, queues: Iterable[int], stop: Stop) -> tuple[set[int], float]:
        """The lock of queue 0 is that of the retry topic, too."""
        wanted = set(queues)
        call = pull_calls.lock_queues(*self._where, self._parts.client_id, _queues_of(wanted))
        locks = self._wire.run(call, stop)
        locked = set(locks.queues) | ({RETRY} if 0 in locks.queues else set())
        return locked & wanted, min(LOCK_VALID_S, locks.seconds)

    def unlock(self, queues: Iterable[int], stop: Stop) -> None:
        """Others may lock them at once, and not after a minute."""
        named = [queue for queue in queues if queue != RETRY]
        if named:
            self._run(pull_calls.unlock_queues(*self._where, self._parts.client_id, named), stop)

    def _run(self, call: Call[Any], stop: Stop) -> None:
        """A call that has to reach the broker although the consumer stops."""
        if not stop.is_set():
            with contextlib.suppress(Stopped):
                self._wire.run(call, stop)
                return
        self._wire.run(call, closing=True)

    def close(self, goodbye: bool) -> None:
        """Leaves the group."""
        self._parts.heartbeats.leave(self._options.group, self._reader, goodbye)

    def _begin(self, stop: Stop, start: Start | None) -> None:
        """Sets a group without an offset in this topic to pull it, from `start` on.

        Only one of several consumers does so, the one that locks the first queue: with "latest" each would start a
        little later than the one before, and messages sent in between would be skipped.
        """
        while not stop.is_set():
            rows = self._offsets(stop)
            if any(row.committed >= 0 for row in rows):
                self._check_mode(stop)
                return
            lock = pull_calls.lock_queues(*self._where, self._parts.client_id, [rows[0].queue])
            if rows[0].queue in (self._wire.run(lock, stop)).queues:
                try:
                    self._begin_locked(stop, start)
                finally:
                    self.unlock([rows[0].queue], stop)
                return
            stop.wait(BEGIN_AGAIN_S)

    def _begin_locked(self, stop: Stop, start: Start | None) -> None:
        if not self._is_new(stop):
            self._check_mode(stop)
            return
        call = subscription_calls.set_consume_mode(*self._where, "PULL", 0, start)
        self._wire.run(call, stop)

    def _is_new(self, stop: Stop) -> bool:
        """Whether the group has no position in the topic."""
        return all(row.committed < 0 for row in self._offsets(stop))

    def _log_start_unused(self) -> None:
        """Logs that `start` has no effect: the group has a position already."""
        if self._options.start is not None:
            text = "group %s continues at its position in topic %s: start=%r is only for a group that is new there"
            log.info(text, self._where[1], self._where[0], self._options.start)

    def _check_mode(self, stop: Stop) -> None:
        topic, group = self._where
        if (self._assignment(stop)).mode != "PULL":
            raise WrongConsumeMode(
                f"group {group!r} pops topic {topic!r}",
                code="WRONG_CONSUME_MODE",
                action=f'client.groups.set_consume_mode("{topic}", "{group}", "PULL"), or pull with another group',
            )

    def _log_mode(self, pulls: bool) -> None:
        """Logs a change of the mode; a consumer whose group pops waits until it is switched back."""
        if pulls != self._pulls:
            end = "" if pulls else ": this consumer waits until the group is switched back"
            log.info("group %s %s topic %s now%s", self._where[1], "pulls" if pulls else "pops", self._where[0], end)
        self._pulls = pulls

    def _assignment(self, stop: Stop) -> Assignment:
        call = pop_calls.query_assignment(*self._where, self._parts.client_id, self._options.strategy)
        return self._wire.run(call, stop)

    def _offsets(self, stop: Stop) -> list[QueueOffsets]:
        return self._wire.run(subscription_calls.query_offsets(*self._where, None), stop)


class EveryQueue:
    """Every queue of a topic, for a reader that keeps its own offsets: in `file`, or in memory only."""

    def __init__(self, wire: Wire, options: PullSettings, file: Path | None) -> None:
        self._wire = wire
        self._topic = options.topic
        self._start: Start = options.start or "earliest"
        self._file = file
        self._offsets: dict[int, int] = {}
        self._created_ms = 0  # of the topic that they are of; 0: not known

    def open(self, _changed: Callable[[], object], stop: Stop) -> None:
        """Reads the file. A reader without offsets begins at its start.

        Raises PopMQError for a broken file, OSError for one that cannot be read or written.
        """
        if self._file is not None:
            kept = aside(offsets_file.read, self._file, self._topic)
            self._offsets, self._created_ms = dict(kept.offsets), kept.topic_created_ms
        if not self._offsets:
            rows = self._query(stop, self._start)
            self._offsets = {row.queue: first_offset(row, self._start) for row in rows}
            self._created_ms = rows[0].topic_created_ms
            self._write()

    def queues(self, stop: Stop) -> set[int] | None:
        """All queues that the topic has now."""
        return {row.queue for row in self._query(stop)}

    def pulls(self) -> bool:
        """Always: progress is saved here, not by the broker."""
        return True

    def begun_anew(self) -> bool:
        """Its offsets are corrected queue by queue."""
        return False

    def places(self, queues: Iterable[int], stop: Stop) -> dict[int, Place]:
        """The saved offsets; a queue that was added to the topic later is read from its first message, and so is a
        topic that was deleted and created again.
        """
        wanted, rows = set(queues), self._query(stop)
        self._compare(rows[0].topic_created_ms)
        return {
            row.queue: Place(self._offsets.get(row.queue, row.min_offset), row.max_offset, row.topic_created_ms)
            for row in rows
            if row.queue in wanted
        }

    def _compare(self, created_ms: int) -> None:
        """Drops the offsets if they are of another topic, and logs it."""
        if self._created_ms not in (0, created_ms):
            kept = f"of {self._file}" if self._file else "of this reader"
            text = "topic %s was deleted and created again: it is read from its first message, not from the offsets %s"
            log.warning(text, self._topic, kept)
            self._offsets.clear()
        self._created_ms = created_ms

    def save(self, offsets: Mapping[int, int], topic_created_ms: int, stop: Stop) -> None:
        """Saves in memory and in the file. Raises TryLater when the file cannot be written."""
        if topic_created_ms != self._created_ms:
            return
        self._offsets.update(offsets)
        try:
            self._write()
        except OSError as error:
            raise TryLater(f"the offsets cannot be written to {self._file}: {error}") from error

    def lock(self, queues: Iterable[int], stop: Stop) -> tuple[set[int], float]:
        """Always succeeds: every reader reads every queue."""
        return set(queues), LOCK_VALID_S

    def unlock(self, queues: Iterable[int], stop: Stop) -> None:
        """Nothing was locked."""

    def close(self, goodbye: bool) -> None:
        """Does nothing: the broker does not know this reader."""

    def _write(self) -> None:
        if self._file is not None:
            kept = offsets_file.Kept(dict(self._offsets), self._created_ms)
            aside(offsets_file.write, self._file, self._topic, kept)

    def _query(self, stop: Stop, start: Start | None = None) -> list[QueueOffsets]:
        moment = None if isinstance(start, str) else start
        return self._wire.run(subscription_calls.query_offsets(self._topic, "", moment), stop)


def _queues_of(numbers: Iterable[int]) -> Sequence[int]:
    return sorted({max(number, 0) for number in numbers})
