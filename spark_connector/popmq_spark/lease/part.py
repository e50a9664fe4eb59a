"""Reads one task's part of an epoch: pops its chunks under sealed tokens and gives them to Spark as Arrow batches.

Runs in an executor. A task may run again after a failure, beside itself (speculation), or once for each action of a
`foreachBatch`: the tokens are in the `Part`, so every run gets the same rows.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import popmq
from popmq_spark.clients import client_of
from popmq_spark.columns import fields_of, to_batches
from popmq_spark.lease.plan import Plan, Slice
from popmq_spark.options import BrokerOptions, Options
from popmq_spark.queue_ends import DataLoss, lose

_log = logging.getLogger("popmq_spark")


class LeaseLoss(RuntimeError):
    """Others popped messages of a batch that Spark reads again, after its lease expired (option failOnLeaseLoss)."""


@dataclass(frozen=True)
class Part(InputPartition):
    """The data that `read` needs. Spark pickles it into the task."""

    broker: BrokerOptions
    group: str
    owner: str
    generation: int
    epoch: int
    part: int
    slices: tuple[Slice, ...]  # read one after the other
    chunk_rows: int
    tag: str | None  # of the plan, not of the options: a batch is read again through its own filter
    sql: str | None
    lease: float
    patience: float
    fail_on_data_loss: bool
    fail_on_lease_loss: bool
    schema: pa.Schema
    decode: bool = True
    drains: bool = False  # of a drain: it is read in its block only

    @classmethod
    def of(cls, plan: Plan, part: int, generation: int, options: Options, schema: pa.Schema) -> Self:
        return cls(
            broker=options.broker,
            group=options.group,
            owner=plan.owner,
            generation=generation,
            epoch=plan.epoch,
            part=part,
            slices=tuple(plan.slices(part)),
            chunk_rows=plan.chunk_rows,
            tag=plan.tag,
            sql=plan.sql,
            lease=options.invisible_time,
            patience=options.broker_unavailable_timeout,
            fail_on_data_loss=options.fail_on_data_loss,
            fail_on_lease_loss=options.fail_on_lease_loss,
            schema=schema,
            decode=options.decode,
            drains=options.drain_plan is not None,
        )

    def token(self, of: Slice, chunk: int) -> popmq.Token:
        place = self.epoch, self.part, chunk
        return popmq.Token(self.owner, self.generation, *place, of.share, of.upto, of.topic_id)


def read_part(part: Part) -> Iterator[pa.RecordBatch]:
    """The rows of the part, one batch for each chunk that holds any.

    The next chunk is fetched while Spark takes the current one. Errors: DataLoss, LeaseLoss, and of popmq.errors Fenced
    (a newer run of the query has taken over), FilterConflict, and Unavailable after brokerUnavailableTimeout.
    """
    try:
        for of in part.slices:
            for sealed in _chunks(part, of):
                _check(part, sealed)
                if len(sealed.columns):
                    yield from to_batches(sealed.columns, of.topic, part.epoch, part.schema, None, part.decode)
    except popmq.errors.EpochAlreadyAcked as error:
        if part.drains:
            raise DataLoss(
                f"popmq: the rows of drain {part.epoch} of group {part.group} were acked at the end of its block: use "
                "drain.rows inside of the block, or store or cache them there"
            ) from error
        if part.fail_on_data_loss:
            raise DataLoss(
                f"popmq: epoch {part.epoch} of group {part.group} was acked before; its messages are not repeated. "
                "An older copy of the checkpoint is in use, or its logs are written asynchronously. To go on without "
                "them set failOnDataLoss to false"
            ) from error
        _log.warning("epoch %d of group %s was acked before: read as empty", part.epoch, part.group)


def _chunks(part: Part, of: Slice) -> Iterator[popmq.SealedBatch]:
    with ThreadPoolExecutor(1, "popmq-ahead") as ahead:
        coming = ahead.submit(_pop, part, of, 0)
        for following in range(1, of.chunks + 1):
            try:
                sealed = coming.result()
            except popmq.errors.TopicNotFound:
                gone = f"the topic {of.topic!r} was deleted, or created again, before epoch {part.epoch} was read"
                lose(part.fail_on_data_loss, gone)
                return
            last = sealed.end or following == of.chunks
            if not last:
                coming = ahead.submit(_pop, part, of, following)
            yield sealed
            if last:
                return


def _pop(part: Part, of: Slice, chunk: int) -> popmq.SealedBatch:
    return client_of(part.broker, part.patience).owners.pop_sealed(
        of.topic,
        part.group,
        part.token(of, chunk),
        max_messages=part.chunk_rows,
        max_bytes=of.chunk_bytes,
        lease=part.lease,
        tag=part.tag,
        sql=part.sql,
        columns=fields_of(part.schema, part.decode),
    )


def _check(part: Part, sealed: popmq.SealedBatch) -> None:
    """Checks that every sealed message was read or is accounted for: otherwise it would be acked without being read."""
    here = len(sealed.columns)
    if here + sealed.torn_stolen + sealed.torn_lost != sealed.count:
        raise DataLoss(f"popmq: {here} of {sealed.count} messages arrived in epoch {part.epoch}, part {part.part}")
    if sealed.torn_lost:
        complain(
            part.fail_on_data_loss and DataLoss,
            f"popmq: {sealed.torn_lost} messages of epoch {part.epoch} are gone: retention dropped them, or they are "
            "damaged. To go on without them set failOnDataLoss to false",
        )
    if sealed.torn_stolen:
        complain(
            part.fail_on_lease_loss and LeaseLoss,
            f"popmq: {sealed.torn_stolen} messages of epoch {part.epoch} went to other consumers of group "
            f"{part.group} while the lease was over; they may be read twice. Set exclusiveOwner, or a longer "
            "invisibleTime; to go on set failOnLeaseLoss to false",
        )


def complain(error: type[RuntimeError] | bool, text: str) -> None:
    if isinstance(error, type):
        raise error(text)
    _log.warning(text)
