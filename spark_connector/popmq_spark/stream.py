"""The streaming reader: plans epochs in the driver, lets tasks pop them, acks what Spark has committed.

Spark's driver runs one object of this class in one process for the whole query; `read` runs in the executors on a copy
that was pickled from yet another process, so nothing that a method leaves in `self` reaches `read`: all it needs is in
the `Part`. The order in which Spark calls, for batch N:

    latestOffset(start)      `start` is in Spark's commit log: everything up to it is acked here, and nowhere else
      → offsets/N            the plan is durable before anything is popped under it
    partitions(start, end)   → read() × parts, as often as Spark likes
      → commits/N            and the next latestOffset acks

Spark may never call commit() for the last batch, and stop() tells nothing about success; neither is needed.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

import popmq
from popmq_spark.options import ROWS_MAX, Options
from popmq_spark.owner import Owner
from popmq_spark.part import Part, connect, read_part
from popmq_spark.plan import Plan

_log = logging.getLogger("popmq_spark")


class PopMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader. `clock` gives seconds that only grow, for maxTriggerDelay; tests set it."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        # No connection yet: Spark makes this object in two processes, and pickles one of them.
        self.clock: Callable[[], float] = time.monotonic
        self._options = options
        self._schema = schema
        self._client: popmq.Client | None = None
        self._owner: Owner | None = None
        self._bounded = False
        self._bound: popmq.Position | None = None
        self._held_back_since: float | None = None
        self._progress: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """A new owner each time: Spark calls this more than once and passes the answer that it uses as `start`."""
        return Plan(owner=uuid.uuid4().hex).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        """Takes the position that this run reads up to; a new group's first latestOffset takes it."""
        self._bounded = True
        try:
            self._bound = self._available(min_ready=0, wait=0.0).upto
        except popmq.errors.GroupNotFound:
            _log.info("the group %s is new", self._options.group)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acks up to `start`, then plans the next epoch, or returns `start` itself when nothing is due.

        Errors: TopicNotFound, Fenced; Unavailable after brokerUnavailableTimeout.
        """
        before = Plan.from_json(start)
        owner = self._hold(before.owner)
        if owner.acked_epoch > before.epoch:
            _log.warning("epoch %d is acked, the checkpoint knows %d: going on", owner.acked_epoch, before.epoch)
        owner.ack_up_to(before.epoch)
        rows = self._rows_due(limit)
        if rows == 0:
            return start
        return self._plan(owner.name, max(before.epoch, owner.acked_epoch) + 1, rows, limit).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The group's backlog at the last latestOffset; Spark shows it as `sources[i].latestOffset`."""
        return self._progress

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        """One task for each part of `end`. The plan in `end` is used even when the options have changed since."""
        plan = Plan.from_json(end)
        if plan.epoch == Plan.from_json(start).epoch:
            return []
        owner = self._hold(plan.owner)
        return [Part.of(plan, number, owner.generation, self._options, self._schema) for number in range(plan.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in an executor, perhaps several times and concurrently: each run returns the same rows."""
        assert isinstance(partition, Part)
        return read_part(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing in most cases: latestOffset has acked already. Spark calls this late or never."""
        plan = Plan.from_json(end)
        try:
            self._hold(plan.owner).ack_up_to(plan.epoch)
        except popmq.errors.TryLater as error:
            _log.info("epoch %d is acked at the next trigger: %s", plan.epoch, error)

    def stop(self) -> None:
        """Closes what is open. Acks and releases nothing: Spark also calls it after a failure."""
        if self._owner:
            self._owner.stop()
        if self._client:
            self._client.close()
        self._owner = self._client = None

    def _connected(self) -> popmq.Client:
        if self._client is None:
            self._client = connect(self._options.broker, self._options.broker_unavailable_timeout)
        return self._client

    def _hold(self, name: str) -> Owner:
        if self._owner is None or self._owner.name != name:
            self._owner = Owner(self._connected(), self._options, name)
        return self._owner

    def _available(self, min_ready: int, wait: float) -> popmq.Availability:
        """What the group can read now; in a bounded run, what of it lies below the bound."""
        options = self._options
        return self._connected().wait_available(options.topic, options.group, min_ready, wait, self._bound)

    def _rows_due(self, limit: ReadLimit) -> int:
        """How many rows the next epoch may plan with; 0 = wait for more."""
        options = self._options
        if self._bounded or isinstance(limit, ReadAllAvailable):
            available = self._available(min_ready=0, wait=0.0)
            if self._bounded and self._bound is None:
                self._bound = available.upto
            self._report(available)
            return available.ready
        available = self._available(options.min_rows_per_trigger, options.long_poll_timeout)
        self._report(available)
        if available.ready >= options.min_rows_per_trigger or self._is_overdue(available.ready):
            self._held_back_since = None
            return available.ready
        return 0

    def _is_overdue(self, ready: int) -> bool:
        if ready == 0:
            self._held_back_since = None
            return False
        if self._held_back_since is None:
            self._held_back_since = self.clock()
        return self.clock() - self._held_back_since >= self._options.max_trigger_delay

    def _plan(self, owner: str, epoch: int, rows: int, limit: ReadLimit) -> Plan:
        options = self._options
        cap = min(rows, limit.max_rows if isinstance(limit, ReadMaxRows) else ROWS_MAX)
        wanted = max(options.min_partitions, -(-cap // options.max_records_per_partition))
        return Plan(
            owner=owner,
            epoch=epoch,
            parts=min(wanted, options.max_partitions, cap),
            cap=cap,
            cap_bytes=options.max_bytes_per_trigger,
            upto=self._bound,
        )

    def _report(self, available: popmq.Availability) -> None:
        stats = available.stats
        self._progress = {
            "ready": available.ready,
            "inFlight": stats.in_flight,
            "backoff": stats.backoff,
            "oldestAgeMs": round(stats.oldest_age * 1000),
        }
