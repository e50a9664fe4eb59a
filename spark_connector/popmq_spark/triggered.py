"""Shared by the streaming readers of both modes: the connection, the options, and when a trigger has enough rows."""

import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

import popmq
from popmq_spark.lease.part import connect
from popmq_spark.options import Reading

Given = TypeVar("Given", bound=Reading)

#: Seconds between two looks of an idle trigger while it waits; longer when it looks at many topics.
LOOK_SECONDS = 0.05
#: Topics that an idle query looks at in a second, at most.
LOOKS_PER_SECOND = 200


class TriggeredReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[Given]):
    """One query's reader. `clock` gives seconds that only grow, `sleep` lets them pass; tests set them."""

    def __init__(self, options: Given, schema: pa.Schema) -> None:
        # No connection yet: Spark makes this object in two processes, and pickles one of them.
        self.clock: Callable[[], float] = time.monotonic
        self.sleep: Callable[[float], None] = time.sleep
        self._options = options
        self._schema = schema
        self._client: popmq.Client | None = None
        self._held_back_since: float | None = None
        self._progress: dict[str, Any] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows_per_trigger)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The backlog at the last latestOffset, in all and by topic; Spark shows it as `sources[i].latestOffset`."""
        return self._progress

    def stop(self) -> None:
        """Closes the connection."""
        if self._client:
            self._client.close()
        self._client = None

    def _connected(self) -> popmq.Client:
        if self._client is None:
            self._client = connect(self._options.broker, self._options.broker_unavailable_timeout)
        return self._client

    def _looks_again(self, topics: int, deadline: float) -> bool:
        """Waits until these topics may be looked at again; whether this trigger is to look, or else the next one."""
        left = deadline - self.clock()
        interval = max(LOOK_SECONDS, topics / LOOKS_PER_SECOND)
        if left > 0:
            self.sleep(interval)
        return interval < left

    def _is_due(self, ready: int, limit: ReadLimit, bounded: bool) -> bool:
        """Whether these rows are enough, or have waited for long enough. Bounded runs and Once take any number."""
        options = self._options
        unlimited = bounded or isinstance(limit, ReadAllAvailable)
        if ready == 0 or unlimited or ready >= options.min_rows_per_trigger:
            self._held_back_since = None
            return ready > 0
        if self._held_back_since is None:
            self._held_back_since = self.clock()
        overdue = self.clock() - self._held_back_since >= options.max_trigger_delay
        if overdue:
            self._held_back_since = None
        return overdue
