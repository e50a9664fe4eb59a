"""Empties a topic once: a batch read that leases messages, and acks them when the action on them has succeeded.

    with popmq_spark.drain(spark, "nightly", endpoint="127.0.0.1:8081", topic="orders", group="spark") as drain:
        drain.rows.write.mode("overwrite").parquet(f"orders/drain={drain.epoch}")

PySpark does not tell a batch source how an action ended: a reader cannot know whether its rows were stored. So the
messages are acked at the end of the block. It follows that:

- Nothing is lost. A block that raises, or a process that dies in it, acks nothing.
- Every action in the block sees the same messages, in the same order.
- An unfinished drain is repeated by the next one of the same name and limits, with the same messages under the
  same `epoch`, as long as no other consumer of the group popped them after the lease. Rows that are stored under their
  epoch, as above, are therefore stored once also when the process dies between the action and the ack.
- Rows that are appended without their epoch may then be stored twice.
"""

import json
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader

from popmq_spark.clients import connect, expect_owners
from popmq_spark.lease.owner import Owner
from popmq_spark.lease.part import Part, read_part
from popmq_spark.lease.plan import Cap, Plan
from popmq_spark.options import OptionError, Options
from popmq_spark.ranges import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition


class Drain:
    """One drain. `rows` is its DataFrame, `epoch` its number: the same for every repeat, greater for the next one.

    Errors of the block's begin: OptionError; TopicNotFound, Unavailable.
    """

    def __init__(self, spark: "SparkSession", name: str, options: "Mapping[str, Any]") -> None:
        self._spark = spark
        self._given = {option: str(value) for option, value in options.items()}
        self._options = Options.parse(self._given)
        if not self._options.topic:
            raise OptionError("popmq: a drain empties one topic: name it by the option topic")
        if self._options.mode != "lease":
            raise OptionError("popmq: a drain leases its messages: leave out mode, or use spark.read")
        self._name = name
        self.epoch = 0
        self._plan_now: Plan | None = None

    def __enter__(self) -> Self:
        options = self._options
        self._client = connect(options.broker, options.broker_unavailable_timeout)
        plan = self._plan("", 1)
        # The limits are part of the owner's name: a repeat under other limits would ask for other sets, and
        # messages that only the first run had sealed would be acked without being read.
        key = f"{self._name}\n{sorted(_limits_of(plan).items(), key=str)}"
        owner = uuid.uuid5(uuid.NAMESPACE_OID, key).hex
        try:
            expect_owners(self._client, "a drain")
            self._owner = Owner(self._client, options, owner, (options.topic,))
        except BaseException:
            self._client.close()
            raise
        self.epoch = self._owner.acked_epoch + 1
        self._plan_now = self._plan(owner, self.epoch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._owner.ack_up_to(self.epoch)
        finally:
            self._owner.stop()
            self._client.close()

    @property
    def options(self) -> dict[str, str]:
        """The options of `rows`. Raises OptionError before the block."""
        if self._plan_now is None:
            raise OptionError("popmq: a drain has its rows in its block: with popmq_spark.drain(…) as drain: …")
        plan = {"plan": self._plan_now.to_json(), "generation": self._owner.generation}
        return self._given | {"drainPlan": json.dumps(plan)}

    @property
    def rows(self) -> "DataFrame":
        """Up to maxRowsPerTrigger messages; every action on them reads the same ones."""
        return self._spark.read.format("popmq").options(**self.options).load()

    def _plan(self, owner: str, epoch: int) -> Plan:
        """Made of the options alone, so that a repeat has the same one. Tasks that find nothing more are empty."""
        options = self._options
        cap = options.max_rows_per_trigger
        parts = parts_of(cap, options.min_partitions, options.max_records_per_partition, options.max_partitions)
        topics = {options.topic: Cap(cap)}
        return Plan(owner, epoch, parts, topics, options.max_bytes_per_trigger, tag=options.tag, sql=options.sql)


def _limits_of(plan: Plan) -> dict[str, Any]:
    """What a drain is known by. Another text would be another owner, whose epochs begin at 1: it stays as it is."""
    cap = {topic: {"cap": cap.rows, "upto": None} for topic, cap in plan.topics.items()}
    names = ("v", "owner", "epoch", "parts", "capBytes", "chunkRows", "tag", "sql")
    return {name: value for name, value in plan.to_json().items() if name in names} | {"topics": cap}


class DrainReader(DataSourceReader):
    """Reads the messages in the plan of a drain."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        assert options.drain_plan is not None
        self._options = options
        self._plan = Plan.from_json(options.drain_plan["plan"])
        self._generation = options.drain_plan["generation"]
        self._schema = schema

    def partitions(self) -> list[Part]:
        """The same tasks for every action."""
        plan = self._plan
        return [Part.of(plan, part, self._generation, self._options, self._schema) for part in range(plan.parts)]

    def read(self, partition: "InputPartition") -> "Iterator[pa.RecordBatch]":
        """Runs in an executor, for each action: the same rows. Errors: those of `part.read_part`."""
        assert isinstance(partition, Part)
        return read_part(partition)
