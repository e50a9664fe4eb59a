"""Requests of exactly-once sinks, as pure functions: see popmq.sink."""

from collections.abc import Sequence
from typing import Any

from popmq._calls.send_calls import Rows, filled
from popmq._transport.call import Call, error_of
from popmq.errors import PopMQError
from popmq.sink import BatchCommit, StageName
from popmq_proto.v1 import popmq_pb2 as pb


def stage(topic: str, rows: Rows, sink: str, batch: int, stage_id: str, piece: int) -> Call[list[PopMQError | None]]:
    """Stores one piece of a stage; reads None or the error of each row. A repeat stores nothing."""
    request = pb.StageRequest(topic=topic, sink=sink, batch=batch, stage_id=stage_id, piece=piece)
    return Call("Broker.Stage", filled(request, [rows]), _read_stage, "send")


def _read_stage(reply: Any, _retried: bool) -> list[PopMQError | None]:
    return [error_of(result.error) if result.HasField("error") else None for result in reply.results]


def commit_batch(sink: str, batch: int, stages: Sequence[StageName], origin: str) -> Call[BatchCommit]:
    """Commits a batch; a repeat is a duplicate, so it may be retried."""
    request = pb.CommitBatchRequest(sink=sink, batch=batch, stages=_names(stages), origin=origin)
    return Call("Broker.CommitBatch", request, lambda reply, _: BatchCommit(reply.messages, reply.duplicate), "settle")


def drop_stages(sink: str, stages: Sequence[StageName]) -> Call[int]:
    """Drops stages; reads how many there were."""
    request = pb.DropStagesRequest(sink=sink, stages=_names(stages))
    return Call("Broker.DropStages", request, lambda reply, _: int(reply.dropped), "settle")


def _names(stages: Sequence[StageName]) -> list[pb.StageName]:
    return [pb.StageName(stage_id=name.stage_id, topic=name.topic, messages=name.messages) for name in stages]
