"""Settings and positions of a group in a topic: filter, consume mode, offsets, message groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from popmq._async.transport.wire import Wire
from popmq._calls.later import Later
from popmq.duration import Duration
from popmq.topic import Start, Subscription

if TYPE_CHECKING:
    from datetime import datetime

    from popmq._calls import subscription_calls
    from popmq.stats import MessageGroups, QueueOffsets
else:
    subscription_calls = Later("popmq._calls.subscription_calls")


class AsyncSubscriptions:
    """What belongs to a group in a topic, and may change while consumers run."""

    _wire: Wire

    async def set_filter(
        self, topic: str, group: str, *, tag: str | None = None, sql: str | None = None, timeout: Duration | None = None
    ) -> Subscription:
        """Replaces the group's filter in the topic, from the next pop on, retries included; without both: no filter.

        Raises TopicNotFound, GroupNotFound, InvalidFilter (its message shows the place), InvalidField.
        """
        return await self._wire.run(subscription_calls.set_filter(topic, group, tag, sql), timeout=timeout)

    async def set_consume_mode(
        self,
        topic: str,
        group: str,
        mode: str,
        share_number: int = 0,
        start: Start | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Subscription:
        """Switches a group in a topic between "POP" and "PULL" while consumers run.

        Nothing is lost, and no acked message is delivered again. `share_number` 0: the group's. `start`: where a group
        begins that is new in the topic; InvalidField for a group that has a position there.
        Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        call = subscription_calls.set_consume_mode(topic, group, mode, share_number, start)
        switched = await self._wire.run(call, timeout=timeout)
        if switched is None and start is not None:
            at = None if isinstance(start, str) else start
            rows = await self.query_offsets(topic, group, at, timeout=timeout)
            subscription_calls.check_begun(topic, group, rows, start)
        if switched is None:
            return await self.set_consume_mode(topic, group, mode, share_number, timeout=timeout)
        return switched

    async def query_offsets(
        self, topic: str, group: str = "", at: datetime | float | None = None, *, timeout: Duration | None = None
    ) -> list[QueueOffsets]:
        """First and next offset of each queue, the one that the group has committed, and the first stored `at` a time.

        `topic` may be %RETRY%group+topic. Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        return await self._wire.run(subscription_calls.query_offsets(topic, group, at), timeout=timeout)

    async def reset_offsets(
        self, topic: str, group: str, to: Start | Mapping[int, int], *, timeout: Duration | None = None
    ) -> dict[int, int]:
        """Moves a group to "earliest", "latest", a time, or to the offsets of the queues that are named.

        Its leases, retries and waiting messages there are dropped. Returns its next offset of each queue.
        Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        return await self._wire.run(subscription_calls.reset_offsets(topic, group, to), timeout=timeout)

    async def clone_offsets(
        self, topic: str, from_group: str, group: str, *, timeout: Duration | None = None
    ) -> dict[int, int]:
        """Gives `group` the offsets of another one, as a reset would. Raises TopicNotFound, GroupNotFound."""
        return await self._wire.run(subscription_calls.clone_offsets(topic, from_group, group), timeout=timeout)

    async def list_message_groups(
        self,
        topic: str,
        group: str,
        max_message_groups: int = 100,
        stopped_only: bool = False,
        *,
        timeout: Duration | None = None,
    ) -> MessageGroups:
        """Message groups of a FIFO topic that wait, are locked or stopped. Raises TopicNotFound, GroupNotFound."""
        return await self._wire.run(
            subscription_calls.list_message_groups(topic, group, max_message_groups, stopped_only), timeout=timeout
        )

    async def resume_message_group(
        self, topic: str, group: str, message_group: str, dead_letter: bool = False, *, timeout: Duration | None = None
    ) -> None:
        """Lets a stopped message group continue: its head is tried again, or with `dead_letter` is a dead letter.

        Raises MessageNotFound when it is not stopped; TopicNotFound, GroupNotFound, InvalidField.
        """
        await self._wire.run(
            subscription_calls.resume_message_group(topic, group, message_group, dead_letter), timeout=timeout
        )
