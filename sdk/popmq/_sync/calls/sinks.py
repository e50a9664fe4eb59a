# Written by sdk/twin.py from popmq/_async/calls/sinks.py: change that one.
"""Calls of exactly-once sinks. See popmq.sink."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from popmq._runtime.later import Later
from popmq._sync.client_parts import Namespace
from popmq._sync.transport.wire import Wire
from popmq.duration import Duration
from popmq.errors import PopMQError

if TYPE_CHECKING:
    from popmq._calls import send_calls
    from popmq._calls.encoded import EncodedMessages
    from popmq._calls.message_rows import Numbering
    from popmq.message import Message
    from popmq.sink import BatchCommit, StageName
else:
    send_calls = Later("popmq._calls.send_calls")


class SinkCalls(Namespace):
    """Stages messages, and commits or drops what was staged."""

    def __init__(self, wire: Wire, client_id: str, numbering: Numbering) -> None:
        super().__init__(wire, client_id)
        self._numbering = numbering

    def stage(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str] | EncodedMessages,
        *,
        sink: str,
        batch: int,
        stage_id: str,
        piece: int = 0,
        timeout: Duration | None = None,
    ) -> list[PopMQError | None]:
        """Stages up to 4,096 messages, 16 MiB in all; returns for each of them None, or the error that refused it.

        `sink` (1–128 bytes) names the program that commits, `stage_id` (1–128 bytes) one attempt of a task for this
        topic and batch. `piece` numbers the requests of a stage from 0; a repeated piece stores nothing. A stage that
        is not committed is dropped 24 h after its last piece. Raises TopicNotFound, Forbidden, StorageFull,
        RateLimited, InvalidField.
        """
        rows, _ = send_calls.given_rows(messages, self._numbering.message_id)
        return self._wire.run(send_calls.stage(topic, rows, sink, batch, stage_id, piece), timeout=timeout)

    def commit(
        self, sink: str, batch: int, stages: Sequence[StageName], *, origin: str = "", timeout: Duration | None = None
    ) -> BatchCommit:
        """Commits a batch of up to 4,096 stages: their messages become visible soon after, each once.

        Other stages of this batch, or of earlier ones, are dropped. The broker remembers the last batch of a sink for
        90 days. `origin` (up to 128 bytes) names what numbers the batches, such as the table of the program's progress:
        numbers that begin again, in another table, are then not taken for repeats. Raises StageNotFound if a stage is
        incomplete, AlreadyExists if another origin committed this number or a greater one: nothing is committed then;
        StorageFull.
        """
        return self._wire.run(send_calls.commit_batch(sink, batch, stages, origin), timeout=timeout)

    def drop(self, sink: str, stages: Sequence[StageName], *, timeout: Duration | None = None) -> int:
        """Drops stages that will not be committed; returns how many of them there were."""
        return self._wire.run(send_calls.drop_stages(sink, stages), timeout=timeout)
