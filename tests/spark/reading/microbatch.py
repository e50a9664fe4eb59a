"""Plays Spark's part for the reader: the same calls in the same order, a checkpoint, a sink that identifies batches.

The order is what MicroBatchExecution of Spark 4.3 does: offsets are on disk before anything is read, commit() comes
late or never, initialOffset() is asked twice, tasks get pickled copies. Crashes are raised where a process may die.
"""

import json
import pickle
import time
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from popmq_spark.lease.stream import PopMQStreamReader
from popmq_spark.offsets.offsets_stream import OffsetsStreamReader
from popmq_spark.source import PopMQDataSource

Row = dict[str, Any]
Reader = PopMQStreamReader | OffsetsStreamReader

#: Where the driver may die in a micro-batch.
CRASH_POINTS = ("planned", "offsets written", "first rows read", "all rows read", "rows stored", "commit written")


class Crash(Exception):
    """The driver died here."""


class MicroBatches:
    """One query: its checkpoint and its sink outlive the driver, its reader does not.

    `sink` holds the rows of each batch; a batch that comes again replaces nothing when `sink_knows_batches`, as Delta
    or the file sink behave, and is added to the first one's rows when not.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.offsets: list[str] = []
        self.commits: list[int] = []
        self.sink: dict[int, list[Row]] = {}
        self.repeated: dict[int, list[Row]] = {}
        self.reader: Reader | None = None
        self.clock: Callable[[], float] = time.monotonic
        self.columns: tuple[str, ...] = ()  # the user's schema; () = all of the source
        self.application = id(self)  # queries of one application set the same
        self.calls: list[str] = []  # of the reader, and what was on disk then: offsets, commits

    def start(self, available_now: bool = False, **changed: Any) -> Reader:
        """A new driver on the same checkpoint, perhaps with other options."""
        self.options |= changed
        self.stop()
        self.reader = self._make_reader()
        self.reader.clock = self.clock
        if available_now:
            self._call("prepareForTriggerAvailableNow")
        self._limit = self._call("getDefaultReadLimit")
        return self.reader

    def stop(self) -> None:
        """Closes everything that the end of the driver's process would close."""
        if self.reader:
            self.reader.stop()
        self.reader = None

    def run(self, limit: ReadLimit | None = None) -> int:
        """Triggers until nothing is new; returns how many batches ran."""
        batches = 0
        while self.trigger(limit):
            batches += 1
        return batches

    def run_once(self) -> bool:
        return self.trigger(ReadAllAvailable())

    def trigger(self, limit: ReadLimit | None = None, crash: str = "", evicts: bool = False) -> bool:
        """One micro-batch; False when there was nothing new. Dies at the point `crash`.

        `evicts`: a watermark lets states end, so that Spark runs a batch also if the source has nothing new.
        """
        if not self.reader:
            self.start()
        batch = len(self.offsets) - 1
        if batch not in self.commits and batch >= 0:
            self._execute(batch, crash)
            return True
        start = json.loads(self.offsets[-1]) if self.offsets else _as_json(self._call("initialOffset"))
        end = _as_json(self._call("latestOffset", start, limit or self._limit))
        _as_json(self._call("reportLatestOffset"))
        if json.dumps(end) == json.dumps(start) and not evicts:
            return False
        _die_at("planned", crash)
        self.offsets.append(json.dumps(end))
        _die_at("offsets written", crash)
        if batch >= 0:
            self._call("commit", json.loads(self.offsets[batch]))
        self._execute(batch + 1, crash)
        return True

    def parts(self, batch: int | None = None) -> list[InputPartition]:
        """The tasks of a batch, pickled as Spark does; none of a batch in which the source had nothing new."""
        if not self.reader:
            self.start()
        number = len(self.offsets) - 1 if batch is None else batch
        if number and self.offsets[number] == self.offsets[number - 1]:
            return []
        start = json.loads(self.offsets[number - 1]) if number else _as_json(self._call("initialOffset"))
        parts = self._call("partitions", start, json.loads(self.offsets[number]))
        return [pickle.loads(pickle.dumps(part)) for part in parts]

    def read(self, part: InputPartition) -> list[Row]:
        """One task: a copy of a reader that was made in another process."""
        reader = pickle.loads(pickle.dumps(self._make_reader()))
        return [row for rows in reader.read(part) for row in rows.to_pylist()]

    def rows(self) -> list[Row]:
        """All rows of the sink."""
        return [row for rows in self.sink.values() for row in rows]

    def _call(self, method: str, *given: Any) -> Any:
        """Calls the reader of the driver's process."""
        assert self.reader
        self.calls.append(f"{method} o={[*range(len(self.offsets))]} c={self.commits}")
        return getattr(self.reader, method)(*given)

    def _execute(self, batch: int, crash: str) -> None:
        rows: list[Row] = []
        for part in self.parts(batch):
            rows += self.read(part)
            _die_at("first rows read", crash)
        _die_at("all rows read", crash)
        if batch in self.sink:
            self.repeated[batch] = rows
        else:
            self.sink[batch] = rows
        _die_at("rows stored", crash)
        self.commits.append(batch)
        _die_at("commit written", crash)

    def _make_reader(self) -> Reader:
        source = PopMQDataSource({name.lower(): str(value) for name, value in self.options.items()})
        schema = source.schema()
        chosen = [field for field in schema.fields if field.name in self.columns] if self.columns else schema.fields
        reader = pickle.loads(pickle.dumps(source)).streamReader(StructType(chosen))
        assert isinstance(reader, PopMQStreamReader | OffsetsStreamReader)
        if isinstance(reader, PopMQStreamReader):
            reader.application = self.application
        return reader


def ids(rows: Iterable[Row]) -> list[str]:
    return [row["message_id"] for row in rows]


def _as_json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))


def _die_at(point: str, crash: str) -> None:
    if point == crash:
        raise Crash(point)
