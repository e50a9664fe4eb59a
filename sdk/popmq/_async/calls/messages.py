"""Calls of single messages, and of dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from popmq._async.client_parts import Namespace
from popmq._runtime.later import Later
from popmq.duration import Duration

if TYPE_CHECKING:
    from datetime import datetime

    from popmq._calls import inspection_calls, send_calls
    from popmq.message import Delivery
    from popmq.stats import (
        DeadLetterReason,
        DelayedMessages,
        Discarded,
        Found,
        MessageLife,
        Page,
        Redriven,
        Rescheduled,
    )
else:
    inspection_calls = Later("popmq._calls.inspection_calls")
    send_calls = Later("popmq._calls.send_calls")


class AsyncMessageCalls(Namespace):
    """Stored messages: find, explain, read without a lease; recall delayed ones."""

    async def look_up(
        self,
        topic: str,
        message_id: str = "",
        key: str = "",
        max_messages: int = 32,
        since: datetime | float | None = None,
        until: datetime | float | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Found:
        """Finds messages of a topic, or of %DLQ%group, by id or by key, newest first.

        `since`, `until` (both included): limits of the time when they were stored. Raises TopicNotFound, InvalidField.
        """
        return await self._wire.run(
            inspection_calls.look_up(topic, message_id, key, max_messages, since, until), timeout=timeout
        )

    async def why(
        self, message_id: str, topic: str = "", group: str = "", *, timeout: Duration | None = None
    ) -> list[MessageLife]:
        """Explains where a message is: the history of each stored message with this id, in each group.

        Raises MessageNotFound, TopicNotFound, InvalidField.
        """
        return await self._wire.run(inspection_calls.why(message_id, topic, group), timeout=timeout)

    async def browse(
        self,
        topic: str,
        queue: int = 0,
        offset: int = 0,
        max_messages: int = 32,
        *,
        order: Literal["", "newest", "oldest"] = "",
        search: str = "",
        since: datetime | float | None = None,
        until: datetime | float | None = None,
        page_token: str = "",
        timeout: Duration | None = None,
    ) -> Page:
        """Reads messages with no lease and no effect: of one queue from an offset on, or in an order over all queues.

        `topic` may be %DLQ%group, or %RETRY%group+topic with the number of an entry as `offset`. An offset below the
        first begins at the first. `order`: by the time when they were stored, instead of `queue` and `offset`. With an
        order: `search` selects messages that have this text in id, body, tag, key, property, message group or
        dead-letter reason (upper and lower case differ; ≤ 256 bytes); `since` and `until`, both included, limit the
        time; `page_token` is `next_page_token` of the page before. A page of a search may be empty although more
        follow: it ends after 100 MiB (`looked_at` says how many messages). Raises TopicNotFound, InvalidField.
        """
        asked = inspection_calls.Browsed(queue, offset, max_messages, order, search, since, until, page_token)
        return await self._wire.run(inspection_calls.browse(topic, asked), timeout=timeout)

    async def peek(
        self,
        topic: str,
        group: str,
        max_messages: int = 32,
        *,
        tag: str | None = None,
        sql: str | None = None,
        timeout: Duration | None = None,
    ) -> list[Delivery]:
        """Returns what the group's next pop would deliver, without a lease; `attempt` is the one that it would count.

        Raises TopicNotFound, GroupNotFound, FilterConflict, InvalidFilter, InvalidField.
        """
        return await self._wire.run(inspection_calls.peek(topic, group, max_messages, tag, sql), timeout=timeout)

    async def list_delayed(
        self,
        topic: str = "",
        until: datetime | float | None = None,
        max_messages: int = 100,
        whole: bool = False,
        *,
        message_id: str = "",
        key: str = "",
        timeout: Duration | None = None,
    ) -> DelayedMessages:
        """Delayed messages of a topic, or of all, that are due before `until`; soonest first. Raises TopicNotFound.

        `whole`: each also with the message itself, as it was sent. `message_id`, `key`: only those that have it.
        """
        call = inspection_calls.list_delayed(topic, until, max_messages, whole, message_id, key)
        return await self._wire.run(call, timeout=timeout)

    async def recall(self, topic: str, recall_handle: str, *, timeout: Duration | None = None) -> str:
        """Recalls a delayed message: it will never be delivered. Returns its id. `recall_handle` is in its receipt.

        Raises MessageNotFound if it was delivered or recalled before (perhaps by an earlier try of this call whose
        answer was lost); TopicNotFound, InvalidField.
        """
        return await self._wire.run(send_calls.recall(topic, recall_handle), timeout=timeout)

    async def reschedule(
        self,
        topic: str,
        recall_handle: str,
        delay: Duration | None = None,
        deliver_at: datetime | float | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Rescheduled:
        """Moves a delayed message: it is delivered once, `delay` from now, or at `deliver_at`; past: at once.

        Its recall handle is another one from then on. Raises as `recall` does; if the answer of an earlier try was
        lost, MessageNotFound too: `list_delayed(message_id=…)` has the new handle. StorageFull; Unsupported behind an
        engine without the capability `reschedule`.
        """
        return await self._wire.run(send_calls.reschedule(topic, recall_handle, deliver_at, delay), timeout=timeout)


class AsyncDeadLetterCalls(Namespace):
    """Dead letters of a group."""

    async def redrive(
        self,
        group: str,
        offsets: Sequence[int] = (),
        topic: str = "",
        message_ids: Sequence[str] = (),
        reason: str | None = None,
        exception: str = "",
        *,
        timeout: Duration | None = None,
    ) -> Redriven:
        """Delivers dead letters of a group again, from attempt 1: all, or only these (≤ 4,096 of each).

        `offsets`: in the dead-letter topic. `topic`: only those that came from this topic. `reason`: only those whose
        reason is counted under this one (`reasons`). `exception`: only those whose reason begins with it, such as
        "ValueError". With an empty group it commits half messages that were given up.
        Raises TopicNotFound, GroupNotFound, InvalidField, StorageFull.
        """
        return await self._wire.run(
            inspection_calls.redrive(group, offsets, topic, message_ids, reason, exception), timeout=timeout
        )

    async def discard(
        self,
        group: str,
        offsets: Sequence[int] = (),
        topic: str = "",
        message_ids: Sequence[str] = (),
        reason: str | None = None,
        exception: str = "",
        *,
        timeout: Duration | None = None,
    ) -> Discarded:
        """Removes dead letters of a group for good: all, or only these, chosen as in `redrive`.

        Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        return await self._wire.run(
            inspection_calls.discard(group, offsets, topic, message_ids, reason, exception), timeout=timeout
        )

    async def reasons(self, group: str, topic: str = "", *, timeout: Duration | None = None) -> list[DeadLetterReason]:
        """Counts the dead letters of a group by reason, the most frequent first; of those from `topic`, or of all.

        Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        return await self._wire.run(inspection_calls.dead_letter_reasons(group, topic), timeout=timeout)
