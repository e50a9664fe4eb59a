"""Stages and batches of one sink for tests, as plain calls."""

from collections.abc import Sequence
from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.errors import Refused
from popmq_server.values.outgoing import Outgoing
from tests.engine.rig import Rig, message, refusals

#: What a stage leaves in the store until it is published or dropped.
TABLES = ("staged", "stage", "publish")


def staging_of(
    stage_id: str, entries: Sequence[Outgoing | Refused], *, batch: int = 0, piece: int = 0, topic: str = "t"
) -> ask.Stage:
    size = sum(len(entry.data) for entry in entries if isinstance(entry, Outgoing))
    return ask.Stage("q", batch, stage_id, piece, topic, tuple(entries), size)


def stage(rig: Rig, stage_id: str, *entries_of: str, **where: Any) -> list[str]:
    """The codes of the refused messages, "" for the others."""
    return refusals(rig.do(staging_of(stage_id, [message(text) for text in entries_of], **where)))


def committing(*stages: tuple[str, int], batch: int = 0, topic: str = "t", sink: str = "q") -> ask.CommitBatch:
    names = tuple(ask.StageName(stage_id, topic, count) for stage_id, count in stages)
    return ask.CommitBatch(sink, batch, names)


def commit(rig: Rig, *stages: tuple[str, int], **which: Any) -> ask.BatchCommitted:
    committed: ask.BatchCommitted = rig.do(committing(*stages, **which))
    rig.settle()
    return committed


def dropping(*stage_ids: str, topic: str = "t") -> ask.DropStages:
    return ask.DropStages("q", tuple(ask.StageName(stage_id, topic) for stage_id in stage_ids))


def left(rig: Rig) -> list[int]:
    return [len(rig.read(name)) for name in TABLES]
