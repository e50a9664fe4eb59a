"""Reading by queue and offset: the calls, and the consumers made of them. See popmq.pull."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from popmq._async.client_parts import alive
from popmq._async.transport.wire import Wire
from popmq._calls.pop_calls import all_or_raise
from popmq._given.fields import filter_row
from popmq._runtime.later import Later
from popmq.config import PULL_MESSAGES
from popmq.duration import Duration, seconds_of

if TYPE_CHECKING:
    from pathlib import Path

    from popmq import message as _message
    from popmq._async.consuming.parts import Parts
    from popmq._async.consuming.pull_consumer import AsyncPullConsumer
    from popmq._async.consuming.share import Share
    from popmq._calls import pull_calls
    from popmq._consuming import pull_settings as _pull_settings
    from popmq._consuming.pull_settings import PullSettings
    from popmq.message import Delivery
    from popmq.outcome import InvisibleTimeResult
    from popmq.pull import BroadcastConsumeOptions, PullConsumeOptions, Pulled, PulledColumns
else:
    pull_calls = Later("popmq._calls.pull_calls")
    _pull_settings = Later("popmq._consuming.pull_settings")
    _message = Later("popmq.message")


class AsyncPulling:
    """A pull takes no lease: the reader keeps its own position."""

    client_id: str
    _wire: Wire
    _parts: Parts
    _pull_consumers: weakref.WeakSet[AsyncPullConsumer]

    async def pull(
        self,
        topic: str,
        group: str,
        queue: int,
        offset: int,
        max_messages: int = PULL_MESSAGES,
        wait: Duration = 0.0,
        *,
        max_bytes: int = 0,
        tag: str | None = None,
        sql: str | None = None,
        commit_offset: int | None = None,
        topic_created_ms: int = 0,
        timeout: Duration | None = None,
    ) -> Pulled:
        """Reads a queue from an offset on, waiting up to `wait` (≤ 60 s) while it is at its end. Takes no lease.

        `group` may be "": a reader without a group. `topic` may be %RETRY%group+topic: of its queue 0 the entries are
        read, by their numbers. `commit_offset`: also commits this offset. `topic_created_ms`: that of the answer which
        the offset is from; then a topic that has been deleted and created again since is refused with TopicNotFound.
        Raises TopicNotFound, GroupNotFound, FilterConflict, InvalidFilter, InvalidField, PollingFull, RateLimited;
        WrongConsumeMode for a group that pops the topic.
        """
        call = pull_calls.pull(
            topic,
            group,
            queue,
            offset,
            max_messages=max_messages,
            wait=seconds_of(wait, "wait"),
            max_bytes=max_bytes,
            filter=filter_row(tag, sql),
            commit_offset=commit_offset,
            topic_created_ms=topic_created_ms,
        )
        return await self._wire.run(call, timeout=timeout)

    async def pull_columns(
        self,
        topic: str,
        queue: int,
        offset: int,
        end: int = 0,
        max_messages: int = 1000,
        *,
        max_bytes: int = 0,
        tag: str | None = None,
        sql: str | None = None,
        columns: Collection[str] | None = None,
        topic_created_ms: int = 0,
        timeout: Duration | None = None,
    ) -> PulledColumns:
        """Reads a queue from an offset on, as columns and without a group: the broker stores nothing about it.

        No message at or after `end` is read (0: no bound); the range is read when `next_offset` has reached it.
        `columns`: only these fields of Columns, and offset, are sent. `max_bytes`: 0 = 3 MiB, ≤ 16 MiB.
        `topic_created_ms`: as in `pull`.
        Raises TopicNotFound, InvalidFilter, InvalidField.
        """
        call = pull_calls.pull_columns(
            topic,
            queue,
            offset,
            end,
            max_messages=max_messages,
            max_bytes=max_bytes,
            filter=filter_row(tag, sql),
            columns=columns,
            topic_created_ms=topic_created_ms,
        )
        return await self._wire.run(call, timeout=timeout)

    async def send_back(
        self,
        deliveries: Delivery | Iterable[Delivery],
        delay: Duration | None = None,
        reason: str = "",
        reject: bool = False,
        max_attempts: int | None = None,
        *,
        timeout: Duration | None = None,
    ) -> list[InvisibleTimeResult]:
        """Sends messages back that `pull` delivered to a group: they are delivered again through the retry topic after
        `delay` (None: the group's backoff). After the last attempt, or with `reject`, they are dead letters.

        `max_attempts`: replaces the group's for this call. The call is not retried when its answer is lost, because a
        repeat would send them back twice: after Unavailable or DeadlineExceeded it may have been done.
        Raises WrongConsumeMode, TopicNotFound, GroupNotFound; MessageNotFound, InvalidField, PartlyRefused.
        """
        rows = [deliveries] if isinstance(deliveries, _message.Delivery) else list(deliveries)
        results: list[Any] = [None] * len(rows)
        for topic, group, indices in pull_calls.by_place(rows):
            entries = [pull_calls.pulled_back(rows[index], delay, reason, reject, max_attempts) for index in indices]
            call = replace(pull_calls.send_back(topic, group, self.client_id, entries), once=True)
            answers = await self._wire.run(call, timeout=timeout)
            for index, answer in zip(indices, answers, strict=True):
                results[index] = answer
        return all_or_raise(results)

    def pull_consume(self, topic: str, group: str, **options: Unpack[PullConsumeOptions]) -> AsyncPullConsumer:
        """Returns a loop over the deliveries of this consumer's queues, until it is stopped; settle each by `with`.

        Options: `tag`, `sql`, `start`, `strategy` "AVG", `queues` (), `orderly` False, `max_messages` 32, `wait` 15 s,
        `flow`, `on_error` "log", `until_idle` None.

        A group pulls or pops a topic. One that is new in the topic pulls it from now on, beginning at `start` (None:
        the group's `start`). `strategy` assigns the queues to the group's consumers; `queues` names them instead.
        When a `with` block succeeds, its message is done. When it raises, the message is sent back and delivered again
        with backoff through the retry topic; after the last attempt it is a dead letter. With `orderly` each queue has
        one unsettled message at a time, and a failed one is retried in place. Commits every 5 s, and at the end.
        `max_messages` and `wait` are those of one pull; `flow` limits what is cached of a queue. `until_idle`: ends
        the loop after this many seconds without a message, counted from when the broker has the outcome of the last
        one, and once the broker reports that there are no more.
        """
        from popmq._async.consuming.share import GroupShare

        self._refuse_second(topic, group, options.get("queues", ()))
        settings = _pull_settings.pull_settings(topic, group, options)
        return self._pulling(settings, GroupShare(self._parts, settings))

    def broadcast_consume(
        self, topic: str, *, offsets: str | Path | None = None, **options: Unpack[BroadcastConsumeOptions]
    ) -> AsyncPullConsumer:
        """Returns a loop over every message of a topic; every broadcast consumer gets each. The broker stores nothing.

        The position is stored in the file `offsets`, one for each reader, every 5 s and at the end; without a file it
        is in memory. A reader without a stored position begins at `start`. A message whose handler raises is logged and
        skipped: there is no retry topic. (`delivery.release(delay=…)` delivers it again.)
        The other options are those of `pull_consume`; `start` is "earliest" if it is not given.
        """
        settings = _pull_settings.broadcast_settings(topic, options)
        from pathlib import Path

        from popmq._async.consuming.share import EveryQueue

        file = None if offsets is None else Path(offsets)
        return self._pulling(settings, EveryQueue(self._wire, settings, file))

    def _pulling(self, settings: PullSettings, share: Share) -> AsyncPullConsumer:
        from popmq._async.consuming.pull_consumer import AsyncPullConsumer

        consumer = AsyncPullConsumer(self._parts, settings, share)
        self._pull_consumers.add(consumer)
        return consumer

    def _refuse_second(self, topic: str, group: str, queues: Sequence[int]) -> None:
        """To the broker a client is one reader: two consumers of it would get the same queues."""
        for other in alive(self._pull_consumers):
            if (other.topic, other.group) == (topic, group) and not other.stopped() and not queues:
                raise RuntimeError(
                    f"this client pulls topic {topic!r} for group {group!r}: name queues, or make another client"
                )
