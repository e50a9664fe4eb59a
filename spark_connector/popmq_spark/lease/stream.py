"""The streaming reader: plans epochs in the driver, lets tasks pop them, acks what Spark has committed.

Spark's driver runs one object of this class in one process for the whole query; `read` runs in the executors on a copy
that was pickled from yet another process, so nothing that a method leaves in `self` reaches `read`: all it needs is in
the `Part`. The order in which Spark calls, for batch N:

    latestOffset(start)      `start` is in Spark's commit log: everything up to it is acked here, at the latest
      → offsets/N            the plan is durable before anything is popped under it
    partitions(start, end)   → read() × parts, as often as Spark likes
      → commits/N            then commit(end) acks, if Spark calls it; else the next latestOffset does

Spark may call commit() late or never, and stop() tells nothing about success; neither is needed.
"""

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

import popmq
from popmq_spark.clients import expect_owners
from popmq_spark.lease.claims import Claim
from popmq_spark.lease.owner import Owner, is_known
from popmq_spark.lease.part import Part, read_part
from popmq_spark.lease.plan import Cap, Plan
from popmq_spark.options import ROWS_MAX, OptionError, Options
from popmq_spark.queue_ends import lose, topics_of
from popmq_spark.ranges import admitted, parts_of
from popmq_spark.triggered import TriggeredReader

_log = logging.getLogger("popmq_spark")


class PopMQStreamReader(TriggeredReader[Options]):
    """One query's reader."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self.application = os.getppid()  # the JVM, which starts the process of each source; tests set it
        self._owner: Owner | None = None
        self._claim: Claim | None = None
        self._bounded = False  # in a run with availableNow
        self._bound: dict[str, popmq.Position] | None = None  # the positions up to which that run reads
        self._reported_epoch = 0  # up to which an older copy of the checkpoint was reported
        self._planned = 0, 0  # the last epoch that this process planned, and the rows that were ready then

    def initialOffset(self) -> dict[str, Any]:
        """A new owner each time: Spark calls this more than once and passes the answer that it uses as `start`."""
        options = self._options
        return Plan(owner=uuid.uuid4().hex, group=options.group, reads=options.wanted.names).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Takes the positions that this run reads up to.

        If the group is new, or new to a topic, the first latestOffset takes them: asking for them begins to read.
        """
        self._bounded = True
        client, group, topics = self._connected(), self._options.group, self._topics()
        try:
            if all(row.committed >= 0 for topic in topics for row in client.offsets.query(topic, group)):
                self._bound = {topic: found.upto for topic, found in self._ask(topics).items()}
        except popmq.errors.GroupNotFound:
            _log.info("the group %s is new", group)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acks up to `start`, then plans the next epoch, or returns `start` itself when nothing is due.

        A topic that appears during the query is read from its first message.

        Errors: TopicNotFound, Fenced; DataLoss for an older copy of the checkpoint; InvalidFilter, FilterConflict, and
        OptionError for a group that pulls a topic, or that another source of this application reads as: before the
        plan that would have them is durable; Unavailable after brokerUnavailableTimeout.
        """
        before = self._read_plan(start)
        topics = self._topics()
        self._expect_same_topics(before.reads)
        self._expect_alone(before.owner, topics)
        owner = self._hold(before.owner, [] if before.epoch else topics)
        self._expect_latest_checkpoint(owner, before)
        owner.attach(topics, "earliest")
        owner.ack_up_to(before.epoch)
        ready = self._due(topics, limit)
        total = sum(row.ready for row in ready.values())
        if not total or self._stands_still(owner, before.epoch, total):
            return start
        epoch = max(before.epoch, owner.acked_epoch) + 1
        self._planned = epoch, total
        return self._plan(owner.name, epoch, ready, limit).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        """One task for each part of `end`. The plan in `end` is used even when the options have changed since."""
        plan = self._read_plan(end)
        if plan.epoch == Plan.from_json(start).epoch:
            return []
        repeats = self._owner is None  # of an earlier process: latestOffset of this one would have attached the owner
        owner = self._regain(plan) if repeats else self._hold(plan.owner)
        return [Part.of(plan, number, owner.generation, self._options, self._schema) for number in range(plan.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in an executor, perhaps several times and concurrently: each run returns the same rows."""
        assert isinstance(partition, Part)
        return read_part(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Acks an epoch that latestOffset has not acked yet. Spark calls this late or never."""
        plan = Plan.from_json(end)
        try:
            self._hold(plan.owner).ack_up_to(plan.epoch)
        except popmq.errors.TryLater as error:
            _log.info("epoch %d is acked at the next trigger: %s", plan.epoch, error)

    def stop(self) -> None:
        """Closes what is open. Acks and releases nothing: Spark also calls it after a failure."""
        if self._owner:
            self._owner.stop()
        self._owner = None
        if self._claim:
            self._claim.drop()
        self._claim = None
        super().stop()

    def _connected(self) -> popmq.Client:
        """Raises OptionError, at the query's first call, where the engine lacks what leases of a query need."""
        if self._client is None:
            expect_owners(super()._connected(), "mode=lease")
        return super()._connected()

    def _read_plan(self, offset: dict[str, Any]) -> Plan:
        """The plan in an offset of this query's checkpoint. Raises OptionError when it is of another group."""
        plan, group = Plan.from_json(offset), self._options.group
        if plan.group and plan.group != group:
            raise OptionError(
                f"popmq: the checkpoint belongs to the group {plan.group}, but the option group is {group!r}: its "
                f"batches cannot be repeated as another group. Set group to {plan.group}, or take a new checkpoint"
            )
        return plan

    def _expect_alone(self, owner: str, topics: Sequence[str]) -> None:
        """Raises OptionError when another source of this Spark application reads one of the topics as the group."""
        if self._claim is None or self._claim.owner != owner:
            if self._claim:
                self._claim.drop()
            self._claim = Claim(self.application, self._options, owner)
        self._claim.add(topics, self.sleep)

    def _expect_latest_checkpoint(self, owner: Owner, before: Plan) -> None:
        """Raises DataLoss when epochs after the checkpoint's last one are acked: their messages do not come again."""
        gone = owner.acked_epoch - before.epoch
        if gone <= 0 or self._reported_epoch == owner.acked_epoch:
            return
        self._reported_epoch = owner.acked_epoch
        lose(
            self._options.fail_on_data_loss,
            f"the checkpoint ends with micro-batch {before.epoch} of group {self._options.group} (popmq_epoch), but "
            f"{gone} more, up to {owner.acked_epoch}, are acked: it is an older copy, and their messages do not come "
            "again by leases. Read them with mode=offsets and a new checkpoint, or move the group back by `popmq "
            "offsets reset TOPIC GROUP --to TIME`",
        )

    def _regain(self, plan: Plan) -> Owner:
        """The owner of a plan that an earlier process made. It was attached before the plan was made.

        A new owner in its place would seal other messages to the same tokens, and a sink that knows the batch would
        drop them. So it is an error; or the epoch is finished at once: it reads as empty, also when it is read again.
        """
        group = self._options.group
        if is_known(self._connected(), group, plan.owner, self._options.invisible_time):
            return self._hold(plan.owner)
        lose(
            self._options.fail_on_data_loss,
            f"the broker no longer knows which messages of group {group} are in epoch {plan.epoch}: its owner "
            f"{plan.owner} was dropped after 7 days without a call, or the group was deleted. Its messages that still "
            "exist are in the group again; a sink may have stored them already",
        )
        owner = self._hold(plan.owner)
        owner.ack_up_to(plan.epoch)
        return owner

    def _topics(self) -> list[str]:
        return topics_of(self._connected(), self._options.wanted)

    def _hold(self, name: str, topics: Sequence[str] = ()) -> Owner:
        """The owner; `topics`: those that a new query begins with."""
        if self._owner is None or self._owner.name != name:
            if self._owner:
                self._owner.stop()
            self._owner = Owner(self._connected(), self._options, name, topics)
        return self._owner

    # ── Available rows ────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, topics: Iterable[str], min_ready: int = 0, wait: float = 0.0) -> dict[str, popmq.Availability]:
        """The rows of each topic that the group can read now; in a bounded run, those below the bound.

        Leaves out topics of a pattern that were deleted since it was looked up.
        """
        client, options, bound = self._connected(), self._options, self._bound or {}
        found = {}
        for topic in topics:
            try:
                found[topic] = row = client.wait_available(
                    topic, options.group, min_ready, wait, bound.get(topic), tag=options.tag, sql=options.sql
                )
            except popmq.errors.TopicNotFound:
                if options.wanted.pattern is None:
                    raise
                continue
            if row.stats.mode != "POP":
                raise OptionError(
                    f"popmq: the group {options.group} pulls the topic {topic}; with mode=lease take a group of its own"
                )
        return found

    def _wait(self, topics: list[str]) -> dict[str, popmq.Availability]:
        """Waits for minRowsPerTrigger, up to longPollTimeout. One topic is waited for at the broker."""
        options = self._options
        if len(topics) == 1:
            return self._ask(topics, options.min_rows_per_trigger, options.long_poll_timeout)
        deadline = self.clock() + options.long_poll_timeout
        while True:
            found = self._ask(topics)
            if sum(row.ready for row in found.values()) >= options.min_rows_per_trigger:
                return found
            if not self._looks_again(len(topics), deadline):
                return found

    def _due(self, topics: list[str], limit: ReadLimit) -> dict[str, popmq.Availability]:
        """The rows of each topic that the next epoch may plan with; none = wait for more."""
        if self._bounded:
            bound = self._bound
            found = self._ask(topics if bound is None else [topic for topic in topics if topic in bound])
            if bound is None:
                self._bound = {topic: row.upto for topic, row in found.items()}
        else:
            found = self._ask(topics) if isinstance(limit, ReadAllAvailable) else self._wait(topics)
        self._report(found)
        ready = sum(row.ready for row in found.values())
        return found if self._is_due(ready, limit, self._bounded) else {}

    def _stands_still(self, owner: Owner, epoch: int, ready: int) -> bool:
        """Whether the run has to end because the last micro-batch read none of its rows: the next would not, either.

        A run without a bound goes on: its next micro-batch may read them. It waits before that.
        """
        if owner.unread_epoch != epoch or self._planned[0] != epoch or ready < self._planned[1]:
            return False
        _log.warning(
            "epoch %d of group %s read none of its %d messages: the query does not read them, by limit(0), or by a "
            "foreachBatch without an action. They stay in the group%s",
            epoch,
            self._options.group,
            self._planned[1],
            "; the run ends" if self._bounded else "",
        )
        if not self._bounded:
            self.sleep(self._options.long_poll_timeout)
        return self._bounded

    def _plan(self, owner: str, epoch: int, ready: dict[str, popmq.Availability], limit: ReadLimit) -> Plan:
        options = self._options
        total = sum(row.ready for row in ready.values())
        cap = min(total, limit.max_rows if isinstance(limit, ReadMaxRows) else ROWS_MAX)
        shares = admitted({(topic, 0): row.ready for topic, row in ready.items()}, cap)
        bound = self._bound or {}
        return Plan(
            owner=owner,
            epoch=epoch,
            parts=parts_of(cap, options.min_partitions, options.max_records_per_partition, options.max_partitions),
            topics={
                topic: Cap(rows, bound.get(topic), ready[topic].topic_id) for (topic, _), rows in shares.items() if rows
            },
            cap_bytes=options.max_bytes_per_trigger,
            tag=options.tag,
            sql=options.sql,
            group=options.group,
            reads=options.wanted.names,
        )

    def _report(self, found: dict[str, popmq.Availability]) -> None:
        rows = {topic: _numbers(row) for topic, row in found.items()}
        together = {name: _over(sum, [row[name] for row in rows.values()]) for name in ("ready", "inFlight", "backoff")}
        oldest = _over(max, [0, *(row["oldestAgeMs"] for row in rows.values())])
        self._progress = {**together, "oldestAgeMs": oldest, "topics": rows}


def _numbers(row: popmq.Availability) -> dict[str, int | None]:
    """The progress of one topic."""
    age = row.stats.oldest_age
    return {
        "ready": row.ready,
        "inFlight": row.stats.in_flight,
        "backoff": row.stats.backoff,
        "oldestAgeMs": None if age is None else round(age * 1000),
    }


def _over(join: Callable[[Iterable[int]], int], numbers: Sequence[int | None]) -> int | None:
    """The number of all topics; None if that of one is unknown."""
    known = [number for number in numbers if number is not None]
    return join(known) if len(known) == len(numbers) else None
