"""Inspection: numbers, leases, sessions, single messages and their histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from popmq._async.transport.wire import Wire
from popmq._calls.later import Later
from popmq.duration import Duration

if TYPE_CHECKING:
    from datetime import datetime

    from popmq._calls import inspection_calls
    from popmq.life import MessageLife
    from popmq.message import Delivery
    from popmq.stats import (
        AccessKeys,
        ClientAnswer,
        ClientSession,
        DeadLetterReason,
        DelayedMessages,
        Discarded,
        Found,
        History,
        Leases,
        Owner,
        Page,
        Redriven,
        Stats,
    )
    from popmq.transaction import HalfMessages
else:
    inspection_calls = Later("popmq._calls.inspection_calls")


class AsyncInspection:
    """Calls that only look, but `end_lease`, `redrive` and `discard`; `verify_message` runs a consumer's handler."""

    _wire: Wire

    async def stats(self, topic: str = "", group: str = "", *, timeout: Duration | None = None) -> Stats:
        """Numbers by topic and group, empty for all. Raises TopicNotFound, GroupNotFound.

        `groups` has each group in each topic that it has read. With a topic and a group it has one row, of zeros until
        the group reads the topic; only `dead` is of all its topics.
        """
        return await self._wire.run(inspection_calls.stats(topic, group), timeout=timeout)

    async def history(self, topic: str = "", group: str = "", *, timeout: Duration | None = None) -> History:
        """Numbers of the last hour: of the whole broker, a topic, a group, or a group in a topic.

        The broker has a point every 30 s, also of the time before its last restart, and none while it was down. With an
        access key without admin the sums are of what the key may see. Raises TopicNotFound, GroupNotFound; Unsupported
        by a broker of an earlier release.
        """
        return await self._wire.run(inspection_calls.history(topic, group), timeout=timeout)

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

    async def leases(
        self, group: str = "", topic: str = "", max_leases: int = 100, *, timeout: Duration | None = None
    ) -> Leases:
        """Lists leases and backoffs with client and deadline, soonest first. Raises TopicNotFound, GroupNotFound."""
        return await self._wire.run(inspection_calls.leases(group, topic, max_leases), timeout=timeout)

    async def end_lease(self, group: str, lease_id: str | int, *, timeout: Duration | None = None) -> int:
        """Ends a lease now, as if its deadline had come; returns how many of its messages were not done.

        They are visible again, or dead letters after their last attempt. `lease_id`, or `checkpoint_id`: as
        `leases` returns it. Raises HandleLapsed if it has ended before, GroupNotFound; InvalidField for the lease of an
        owner (use `release_owner`).
        """
        return await self._wire.run(inspection_calls.end_lease(group, lease_id), timeout=timeout)

    async def access_keys(self, *, timeout: Duration | None = None) -> AccessKeys:
        """The broker's access keys without their secrets: all for the right admin, else this client's own."""
        return await self._wire.run(inspection_calls.access_keys(), timeout=timeout)

    async def owners(self, group: str = "", *, timeout: Duration | None = None) -> list[Owner]:
        """Owners of a group, or of all. Raises GroupNotFound."""
        return await self._wire.run(inspection_calls.owners(group), timeout=timeout)

    async def sessions(
        self, group: str = "", *, recent: bool = False, timeout: Duration | None = None
    ) -> list[ClientSession]:
        """Clients with a session in a group, or all, with those that answer for transactions. Raises GroupNotFound.

        `recent`: also clients without a session that popped, pulled or sent within the last five minutes, and for each
        client how often it did.
        """
        return await self._wire.run(inspection_calls.sessions(group, recent), timeout=timeout)

    async def client_stack(self, client_id: str, *, timeout: Duration | None = None) -> ClientAnswer:
        """The stacks of the threads of an official RocketMQ 5 client, as the client reports them.

        Raises ClientNotFound; Unavailable without an answer in 5 s.
        """
        return await self._wire.run(inspection_calls.client_stack(client_id), timeout=timeout)

    async def verify_message(
        self, client_id: str, topic: str, queue: int, offset: int, *, timeout: Duration | None = None
    ) -> ClientAnswer:
        """Lets an official RocketMQ 5 push consumer handle one stored message once: nothing is leased or acked.

        Raises ClientNotFound, TopicNotFound, MessageNotFound, InvalidField; Unavailable without an answer in 5 s.
        """
        return await self._wire.run(inspection_calls.verify_message(client_id, topic, queue, offset), timeout=timeout)

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

    async def redrive(
        self,
        group: str,
        offsets: Sequence[int] = (),
        topic: str = "",
        message_ids: Sequence[str] = (),
        reason: str | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Redriven:
        """Delivers dead letters of a group again, from attempt 1: all, or only these (≤ 4,096 of each).

        `offsets`: in the dead-letter topic. `topic`: only those that came from this topic. `reason`: only those whose
        reason is counted under this one (`dead_letter_reasons`). With an empty group it commits half messages that were
        given up. Raises TopicNotFound, GroupNotFound, InvalidField, StorageFull.
        """
        return await self._wire.run(
            inspection_calls.redrive(group, offsets, topic, message_ids, reason), timeout=timeout
        )

    async def discard(
        self,
        group: str,
        offsets: Sequence[int] = (),
        topic: str = "",
        message_ids: Sequence[str] = (),
        reason: str | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Discarded:
        """Removes dead letters of a group for good: all, or only these, chosen as in `redrive`.

        Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        return await self._wire.run(
            inspection_calls.discard(group, offsets, topic, message_ids, reason), timeout=timeout
        )

    async def dead_letter_reasons(
        self, group: str, topic: str = "", *, timeout: Duration | None = None
    ) -> list[DeadLetterReason]:
        """Counts the dead letters of a group by reason, the most frequent first; of those from `topic`, or of all.

        Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        return await self._wire.run(inspection_calls.dead_letter_reasons(group, topic), timeout=timeout)

    async def list_delayed(
        self,
        topic: str = "",
        until: datetime | float | None = None,
        max_messages: int = 100,
        *,
        timeout: Duration | None = None,
    ) -> DelayedMessages:
        """Delayed messages of a topic, or of all, that are due before `until`; soonest first. Raises TopicNotFound."""
        return await self._wire.run(inspection_calls.list_delayed(topic, until, max_messages), timeout=timeout)

    async def list_transactions(
        self, topic: str = "", max_messages: int = 100, *, timeout: Duration | None = None
    ) -> HalfMessages:
        """Half messages of a topic, or of all, that are not ended; in each topic oldest first. Raises TopicNotFound."""
        return await self._wire.run(inspection_calls.list_transactions(topic, max_messages), timeout=timeout)
