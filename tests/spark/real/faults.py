"""Failures of tasks and sinks in the queries of the chaos campaign. Each one leaves a file, and is counted by it.

    task                of first attempts, one in twenty after its first rows
    before              the sink fails when its rows are written and not committed
    after               the sink has committed, and Spark's commit log does not know it

Of every ten micro-batches of a query the second one fails before, and it or the third one after its commit.
There is no speculation, which needs a second host: `test_speculation.py` has a cluster of two.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from popmq_spark.source import PopMQDataSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Of first attempts; a second one never fails by chance, or tasks would run out of attempts.
TASK_FAILURES = 0.05
FOLDER = "faults"


@dataclass(frozen=True)
class Faults:
    """The failures of one start of one query."""

    folder: Path
    path: str
    start: str = field(default_factory=lambda: uuid4().hex)

    def once(self, what: str, batch: int, said: str = "") -> bool:
        """True for the first one in the life of the query that asks; `said` is what the others find."""
        place = self._file(what, batch)
        place.parent.mkdir(exist_ok=True)
        try:
            with place.open("x") as file:
                file.write(said)
        except FileExistsError:
            return False
        return True

    def said(self, what: str, batch: int) -> str:
        place = self._file(what, batch)
        return place.read_text() if place.exists() else ""

    def _file(self, what: str, batch: int) -> Path:
        return self.folder / FOLDER / f"{what}={self.path}={batch}"

    def in_task(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Passes the rows of a task on, and fails in it."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context
        fails = context.attemptNumber() == 0 and random.random() < TASK_FAILURES
        for rows in batches:
            yield rows
            if fails:
                self.once("task", context.taskAttemptId(), self.start)
                raise OSError("this task fails once")
        number = context.getLocalProperty("streaming.sql.batchId")
        if number is not None and self.path.endswith("-table"):
            self._fail_a_table(int(number))

    def _fail_a_table(self, batch: int) -> None:
        """Fails each attempt of the tasks of a batch; or takes the name of its entry in Spark's commit log.

        Spark writes its entry after the table's, finds that there is one, and ends the query.
        """
        if batch % 10 == 1 and (self.once("before", batch, self.start) or self.said("before", batch) == self.start):
            raise OSError("this sink fails before its commit")
        if batch % 10 == 2 and self.once("after", batch):
            os.close(os.open(self._commits() / str(batch), os.O_CREAT | os.O_EXCL))

    def mend(self) -> None:
        """Removes what `_fail_a_table` left in the commit log; Spark's own entries are not empty."""
        for entry in self._commits().glob("[0-9]*"):
            if not entry.stat().st_size:
                entry.unlink()

    def _commits(self) -> Path:
        return self.folder / f"checkpoint-{self.path}" / "commits"

    def around(self, commit: Callable[[], None], batch: int) -> None:
        """Fails before the commit, and after it when the batch is repeated."""
        if batch % 10 == 1 and self.once("before", batch):
            raise OSError("this sink fails before its commit")
        commit()
        if batch % 10 == 1 and self.once("after", batch):
            raise OSError("this sink fails after its commit")

    def into_delta(self, table: str) -> "Callable[[DataFrame, int], None]":
        """Stores a batch under its number, so that Delta drops a repeat."""

        def store(rows: "DataFrame", batch: int) -> None:
            writer = rows.write.format("delta").option("txnAppId", self.path).option("txnVersion", batch)
            self.around(lambda: writer.mode("append").save(table), batch)

        return store


class FailingSource(PopMQDataSource):
    """The data source "failing-popmq": a sink that fails between stage and commit, and after the commit."""

    @classmethod
    def name(cls) -> str:
        return "failing-popmq"

    def streamWriter(self, schema: StructType, overwrite: bool) -> "FailingWriter":  # type: ignore[override]
        given = {name: value for name, value in self.options.items() if name not in ("folder", "path")}
        writer = PopMQDataSource(given).streamWriter(schema, overwrite)
        return FailingWriter(writer, Faults(Path(self.options["folder"]), self.options["path"]))


class FailingWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: DataSourceStreamArrowWriter, faults: Faults) -> None:
        self._writer = writer
        self._faults = faults

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._faults.around(lambda: self._writer.commit(messages, batchId), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.abort(messages, batchId)


def counted(folder: Path) -> Counter[tuple[str, str]]:
    """How often what failed at which sink: ("before", "table") and so on."""
    names = [file.name.split("=") for file in (folder / FOLDER).iterdir()]
    return Counter((what, path.partition("-")[2]) for what, path, _ in names)
