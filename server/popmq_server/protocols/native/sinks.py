"""popmq.v1: exactly-once sinks. docs/sinks.md describes them; stages.py has the rules."""

from collections.abc import Sequence

from google.protobuf.message import Message

from popmq_proto.store.store_pb2 import StageView
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import (
    CommitBatch,
    DropStages,
    NewMessage,
    Stage,
    StageName,
)
from popmq_server.errors import Refused
from popmq_server.protocols import validation
from popmq_server.protocols.entries import validated
from popmq_server.protocols.native import requests
from popmq_server.protocols.native.native import NativeServicer
from popmq_server.protocols.native.requests import read
from popmq_server.protocols.refusals import entry_info
from popmq_server.values.message import check_messages_total, check_range, check_text


class StagingService(NativeServicer):
    """Stages messages, commits batches of them, and drops what is not committed."""

    async def Stage(self, raw: bytes) -> Message:
        """Stores one piece of a stage; invalid messages are refused one by one."""
        command = _read_stage(raw)
        with self._metrics.limits("", command.topic):
            answer = await self._engine.execute(command)
        self._traffic.served("Stage", "", command.topic)
        self._traffic.recent.began("sends", "", command.topic)
        staged = _staged(command, answer)
        self._traffic.moved("Stage", "", command.topic, len(staged), sum(staged))
        return pb.StageResponse(results=[self._result(entry, index) for index, entry in enumerate(answer)])

    def _result(self, entry: Refused | None, place: int) -> pb.StageResult:
        """Converts one result; counts a refused entry, as other calls do."""
        if entry is None:
            return pb.StageResult()
        return pb.StageResult(error=entry_info(entry, "messages", place, self._metrics))

    async def CommitBatch(self, raw: bytes) -> Message:
        """Decides that a batch will be published; the answer says whether that was decided before."""
        request = read(pb.CommitBatchRequest, raw)
        sink, batch = _sink(request.sink), check_range(request.batch, "batch", 0, requests.INT64_MAX)
        origin = check_text(request.origin, "origin", requests.ORIGIN_BYTES_MAX)
        command = CommitBatch(sink, batch, _stage_names(request.stages, 0), origin=origin)
        answer = await self._engine.execute(command)
        self._traffic.served("CommitBatch", "")
        if not answer.duplicate:
            self._traffic.moved("CommitBatch", "", "", answer.messages)
        return pb.CommitBatchResponse(duplicate=answer.duplicate, messages=answer.messages)

    async def DropStages(self, raw: bytes) -> Message:
        """Drops stages; unknown ones are ignored."""
        request = read(pb.DropStagesRequest, raw)
        command = DropStages(_sink(request.sink), _stage_names(request.stages, 1))
        dropped = await self._engine.execute(command)
        self._traffic.served("DropStages", "")
        return pb.DropStagesResponse(dropped=dropped)


def _sink(name: str) -> str:
    return check_text(name, "sink", requests.SINK_BYTES_MAX, required=True)


def _staged(command: Stage, answer: Sequence[Refused | None]) -> list[int]:
    """Bytes of each staged message."""
    pairs = zip(command.entries, answer, strict=True)
    return [len(entry.data) for entry, refused in pairs if refused is None and isinstance(entry, NewMessage)]


def _read_stage(whole: bytes) -> Stage:
    """The command of a Stage, validated as in `read_send`. Missing ids follow from the stage and the piece."""
    view = requests.read(StageView, whole, pb.StageRequest.DESCRIPTOR.full_name)
    if len(view.messages) > validation.ENTRIES_MAX:  # before they are copied
        check_range(len(view.messages), "messages", 1, validation.ENTRIES_MAX)
    raws = list(view.messages)  # each access to the field copies a message
    total = sum(map(len, raws))
    check_messages_total(len(raws), total, validation.ENTRIES_MAX, validation.SEND_BYTES_MAX)
    sink = check_text(view.sink, "sink", requests.SINK_BYTES_MAX, required=True)
    stage_id = check_text(view.stage_id, "stage_id", requests.SINK_BYTES_MAX, required=True)
    batch = check_range(view.batch, "batch", 0, requests.INT64_MAX)
    entries = validated(pb.StageRequest, whole, raws, stage_id, view.piece)
    return Stage(sink, batch, stage_id, view.piece, validation.sent_name(view.topic), entries, total)


def _stage_names(names: Sequence[pb.StageName], least: int) -> tuple[StageName, ...]:
    """The stages of a CommitBatch or DropStages."""
    check_range(len(names), "stages", least, validation.ENTRIES_MAX)
    found = []
    for index, name in enumerate(names):
        stage_id = check_text(name.stage_id, f"stages[{index}].stage_id", requests.SINK_BYTES_MAX, required=True)
        found.append(StageName(stage_id, validation.topic_name(name.topic, f"stages[{index}].topic"), name.messages))
    return tuple(found)
