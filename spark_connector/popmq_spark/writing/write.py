"""Writes rows to topics: at least once, or exactly once with batches that are staged and then committed.

    task      write(rows)        at least once: sent at once; exactly once: staged, in no queue (docs/sinks.md)
              → Written          the staged rows, for the driver
    driver    commit(messages)   exactly once: commits the batch under its number; a repeat is known by it
              abort(messages)    drops the known stages; the broker drops the rest

Spark makes a new writer for each call in the driver, so all that `commit` needs is in the `Written`s. A task learns the
query and the batch from its TaskContext: the id of a streaming query stays the same over restarts, and after a failure
Spark runs the same batch number again.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

import popmq
from popmq_spark.clients import client_of, expect_stages
from popmq_spark.rows import Row
from popmq_spark.writing.requests import requests
from popmq_spark.writing.write_options import WriteOptions

_log = logging.getLogger("popmq_spark")

#: Properties of a task's TaskContext with its query and batch.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
#: Stages of one commit, by the contract.
STAGES_MAX = 4096
#: Bytes that are kept of the body of a row that was refused for its size.
BAD_BODY_BYTES_MAX = 1 << 20


#: Errors that another row, or a row for another topic, would not have.
_FAULTS_OF_A_ROW = (popmq.errors.InvalidField, popmq.errors.TopicNotFound)


class BadRowError(ValueError):
    """A row cannot be a message. The text says why; the option badRowTopic lets the query go on without it."""


class WriteError(RuntimeError):
    """An exactly-once sink cannot commit: its batch is not known, its name has others, or it has too many tasks."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of a task: the rows that it sent or staged, and its stages if they are to be committed."""

    rows: int
    bad_rows: int
    sink: str = ""
    batch: int = 0
    stages: tuple[popmq.StageName, ...] = ()
    origin: str = ""  # the id of the streaming query, and so of its checkpoint; "" outside of one


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query.

    Spark pickles it into its tasks and makes a new one for each commit and abort: it keeps nothing but its options.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs in an executor, for each task of a batch; each attempt stages under ids of its own."""
        options = self._options
        if not options.delivery:
            return _write(options, iterator, Sending(options))
        query, batch = _needed_property(QUERY_ID), _needed_property(BATCH_ID)
        return _write(options, iterator, Staging(options, options.txn_app_id or query, int(batch), query))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commits the stages of the winning attempts. Raises StageNotFound: then Spark repeats the batch.

        Raises WriteError when the name has batches of another checkpoint.
        """
        _commit(self._options, messages, streaming=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drops what the finished tasks staged."""
        _abort(self._options, messages)


class BatchWriter(DataSourceArrowWriter):
    """The sink of a batch write; exactly once by txnAppId and txnVersion."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs in an executor, for each task."""
        options = self._options
        if options.txn_version is None:
            return _write(options, iterator, Sending(options))
        # In foreachBatch the tasks of a write see the query, except under Spark Connect.
        query = _task_property(QUERY_ID)
        return _write(options, iterator, Staging(options, options.txn_app_id, options.txn_version, query))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the stages of the winning attempts."""
        _commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drops what the finished tasks staged."""
        _abort(self._options, messages)


def _task_property(name: str) -> str:
    """What Spark tells this task; "" if it does not."""
    context = TaskContext.get()
    return (context.getLocalProperty(name) if context else None) or ""


def _needed_property(name: str) -> str:
    value = _task_property(name)
    if not value:
        raise WriteError(
            f"popmq: Spark does not tell the task its {name}, which delivery = exactly-once needs; "
            "write in foreachBatch with txnAppId and txnVersion, or with delivery = at-least-once"
        )
    return value


def _client(options: WriteOptions) -> popmq.Client:
    """This process's client: a task and the driver's commit wait as long for a broker that is away as a read does.

    It stays connected, because Spark uses a Python process for many tasks.
    """
    return client_of(options.broker, options.broker_unavailable_timeout)


def check_engine(options: WriteOptions) -> None:
    """Asks in the driver, before a task stages anything. Raises OptionError where exactly-once cannot be."""
    if options.delivery:
        expect_stages(_client(options))


class Sending:
    """Sends rows at once."""

    def __init__(self, options: WriteOptions) -> None:
        self._client = _client(options)

    def put(self, topic: str, messages: popmq.EncodedMessages) -> list[popmq.PopMQError | None]:
        """Returns None or the error for each message.

        A request that is retried by the client is stored once; a task that Spark repeats sends its rows again.
        """
        try:
            self._client.send(topic, messages)
        except popmq.errors.PartlyRefused as refused:
            return [refused.errors.get(place) for place in range(len(messages))]
        except popmq.errors.InvalidField as error:  # of one message alone; several are PartlyRefused
            if len(messages) > 1:
                raise  # of the topic: `_put` takes it for all rows
            return [error]
        return [None] * len(messages)

    def written(self, good: int, bad: int) -> Written:
        return Written(good, bad)


class Staging:
    """Stages rows: one stage for each topic that the task meets."""

    def __init__(self, options: WriteOptions, sink: str, batch: int, origin: str) -> None:
        """`sink` and `batch` name what the driver commits; the id of the attempt keeps two attempts apart.

        `origin`: the id of the query that numbers the batches, "" if it is not known.
        """
        self._client = _client(options)
        self._sink = sink
        self._batch = batch
        self._origin = origin
        self._attempt = uuid4().hex
        self._pieces: dict[str, int] = {}
        self._staged: dict[str, int] = {}

    def put(self, topic: str, messages: popmq.EncodedMessages) -> list[popmq.PopMQError | None]:
        """Returns None or the error for each message."""
        piece = self._pieces.get(topic, 0)
        stage_id = self._stage_id(topic)
        results = self._client.sinks.stage(
            topic, messages, sink=self._sink, batch=self._batch, stage_id=stage_id, piece=piece
        )
        self._pieces[topic] = piece + 1
        self._staged[topic] = self._staged.get(topic, 0) + sum(result is None for result in results)
        return results

    def _stage_id(self, topic: str) -> str:
        """Of this attempt and topic: 32 digits, and the number of the topic in this task."""
        return f"{self._attempt}-{[*self._pieces, topic].index(topic)}"

    def written(self, good: int, bad: int) -> Written:
        stages = [
            popmq.StageName(self._stage_id(topic), topic, count) for topic, count in self._staged.items() if count
        ]
        return Written(good, bad, self._sink, self._batch, tuple(stages), self._origin)


def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch], out: Sending | Staging) -> Written:
    """Writes all rows in requests, one topic each, and applies the policy for bad rows."""
    good = bad = 0
    for request in requests(batches, options.topic, options.max_rows_per_request):
        refused = request.bad + _put(out, request.topic, request.messages())
        good, bad = good + request.rows - len(refused), bad + len(refused)
        if refused:
            _set_aside(options, out, refused)
    return out.written(good, bad)


def _put(out: Sending | Staging, topic: str, messages: popmq.EncodedMessages) -> list[Row]:
    """Writes messages of one topic; returns those that the broker refused for their content."""
    if not messages:
        return []
    try:
        results = out.put(topic, messages)
    except _FAULTS_OF_A_ROW as error:
        if error.field != "topic":
            raise
        results = [error] * len(messages)
    refused: list[Row] = []
    for place, result in enumerate(results):
        if result is not None and not isinstance(result, _FAULTS_OF_A_ROW):
            raise result
        if result is not None:
            refused.append(Row(topic, None, result.message, messages.body(place)))
    return refused


def _set_aside(options: WriteOptions, out: Sending | Staging, refused: Sequence[Row]) -> None:
    """Writes bad rows to badRowTopic; without one they fail the task."""
    if not options.bad_row_topic:
        raise BadRowError(
            f"popmq: {len(refused)} rows for topic {refused[0].topic!r} cannot be sent; the first: "
            f"{refused[0].reason}. Filter them, or name a topic that takes them: badRowTopic"
        )
    left = _put(out, options.bad_row_topic, popmq.EncodedMessages.of(map(_bad_row, refused)))
    if left:
        raise BadRowError(f"popmq: badRowTopic {options.bad_row_topic!r} refuses a row, too: {left[0].reason}")


def _bad_row(row: Row) -> popmq.Message:
    """The beginning of the body of a bad row (a zero byte if it has none), its topic and the reason."""
    kept = (row.body or b"")[:BAD_BODY_BYTES_MAX] or b"\0"
    return popmq.Message(kept, properties={"bad_row_topic": row.topic[:1000], "bad_row_reason": row.reason[:1000]})


# A batch without tasks has no message, and so no name of the sink: nothing is committed, and nothing needs to be.
def _commit(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], streaming: bool = False) -> None:
    written = [message for message in messages if isinstance(message, Written) and message.sink]
    if not written:
        return
    ((sink, batch, origin),) = {(message.sink, message.batch, message.origin) for message in written}
    stages = [stage for message in written for stage in message.stages]
    if len(stages) > STAGES_MAX:
        raise WriteError(
            f"popmq: batch {batch} has {len(stages)} stages, one for each task and topic, and at most {STAGES_MAX} are "
            "committed together: write fewer partitions, as by rows.coalesce(64)"
        )
    try:
        done = _client(options).sinks.commit(sink, batch, stages, origin=origin)
    except popmq.errors.AlreadyExists as error:
        raise _another_checkpoint(sink, batch, error.message) from error
    if not done.duplicate:
        return
    rows = sum(stage.messages for stage in stages)
    if streaming and rows and not done.messages:
        why = "a later batch is committed under it, or this one without rows, and a stream repeats its last batch only"
        raise _another_checkpoint(sink, batch, why)
    _log.warning("batch %d of %s was committed before; its rows are in the topic once", batch, sink)


def _another_checkpoint(sink: str, batch: int, why: str) -> WriteError:
    """The rows would be lost: the number was committed, but not for this batch.

    The repeat of a checkpoint's own batch is none, also with other rows (a filter on chance, messages that others
    popped): those that are committed count.
    """
    return WriteError(
        f"popmq: batch {batch} is not stored: {sink!r} has batches of another checkpoint ({why}). Set txnAppId to a "
        "new name for this checkpoint, or go on with the checkpoint that wrote the last batch"
    )


def _abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Drops stages. Never raises: the broker drops the remaining ones."""
    for message in messages:
        if isinstance(message, Written) and message.stages:
            try:
                _client(options).sinks.drop(message.sink, message.stages)
            except popmq.PopMQError as error:
                _log.info("stages of batch %d are left to the broker: %s", message.batch, error)
