"""Shared by the streaming readers of both modes: the connection, the options, and when a trigger has enough rows."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

import popmq
from popmq_spark.clients import connect
from popmq_spark.options import OptionError, Reading
from popmq_spark.queue_ends import is_wanted

_log = logging.getLogger("popmq_spark")

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
        self._topics_expected = False

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

    def _expect_same_topics(self, known: Iterable[str]) -> None:
        """Compares the topics of the checkpoint with the options, once: logs those that are no longer read.

        Raises OptionError when none of them is: the checkpoint is more likely that of another query.
        """
        known, expected, self._topics_expected = list(known), self._topics_expected, True
        left = sorted(topic for topic in known if not is_wanted(topic, self._options.wanted))
        if expected or not left:
            return
        told = ", ".join(map(repr, left))
        if len(left) == len(known):
            raise OptionError(
                f"popmq: the checkpoint is of the topics {told}, and the options name none of them. Take a new "
                "checkpoint for other topics; to go over to them on this one, first read both together"
            )
        _log.warning(
            "the checkpoint is also of the topics %s, which the options no longer name: not read further", told
        )

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
