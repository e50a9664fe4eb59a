"""Calls of offsets, and of the queues that a client reads by offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from popmq._async.client_parts import Namespace
from popmq._runtime.later import Later
from popmq.duration import Duration
from popmq.topic import Assignment, Place

if TYPE_CHECKING:
    from datetime import datetime

    from popmq._calls import pop_calls, pull_calls, subscription_calls
    from popmq.pull import QueueLocks
    from popmq.stats import QueueOffsets
else:
    pop_calls = Later("popmq._calls.pop_calls")
    pull_calls = Later("popmq._calls.pull_calls")
    subscription_calls = Later("popmq._calls.subscription_calls")


class AsyncOffsetCalls(Namespace):
    """Where a group is in the queues of a topic."""

    async def query(
        self, topic: str, group: str = "", at: datetime | float | None = None, *, timeout: Duration | None = None
    ) -> list[QueueOffsets]:
        """First and next offset of each queue, the one that the group has committed, and the first stored `at` a time.

        `topic` may be %RETRY%group+topic. Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        return await self._wire.run(subscription_calls.query_offsets(topic, group, at), timeout=timeout)

    async def update(
        self,
        topic: str,
        group: str,
        offsets: Mapping[int, int],
        *,
        topic_created_ms: int = 0,
        timeout: Duration | None = None,
    ) -> None:
        """Commits offsets, forwards or backwards: queue → the next offset that the group reads.

        For %RETRY%group+topic: entries of queue 0 below the offset are done. `topic_created_ms`: as in `pull`.
        Raises WrongConsumeMode for a group that pops, TopicNotFound, GroupNotFound, InvalidField.
        """
        await self._wire.run(pull_calls.update_offsets(topic, group, offsets, topic_created_ms), timeout=timeout)

    async def reset(
        self, topic: str, group: str, to: Place | Mapping[int, int], *, timeout: Duration | None = None
    ) -> dict[int, int]:
        """Moves a group to "earliest", "latest", a time, or to the offsets of the queues that are named.

        Its leases, retries and waiting messages there are dropped. Returns its next offset of each queue. A bare number
        and a time in the future are refused. Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        return await self._wire.run(subscription_calls.reset_offsets(topic, group, to), timeout=timeout)

    async def clone(
        self, topic: str, from_group: str, group: str, *, timeout: Duration | None = None
    ) -> dict[int, int]:
        """Gives `group` the offsets of another one, as a reset would. Raises TopicNotFound, GroupNotFound."""
        return await self._wire.run(subscription_calls.clone_offsets(topic, from_group, group), timeout=timeout)


class AsyncQueueCalls(Namespace):
    """Which queues this client reads; consumers call these by themselves."""

    async def assignment(
        self, topic: str, group: str, strategy: str = "", *, timeout: Duration | None = None
    ) -> Assignment:
        """Returns the queues that the broker assigns to this client; consumers call this by themselves.

        `strategy`, for groups that pull: AVG (also when empty), CIRCLE, CONSISTENT_HASH or MACHINE_ROOM.
        """
        return await self._wire.run(
            pop_calls.query_assignment(topic, group, self._client_id, strategy), timeout=timeout
        )

    async def lock(
        self, topic: str, group: str, queues: Sequence[int], *, timeout: Duration | None = None
    ) -> QueueLocks:
        """Locks queues for this client, or renews their locks (60 s); returns the queues that it has locked now.

        Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        return await self._wire.run(pull_calls.lock_queues(topic, group, self._client_id, queues), timeout=timeout)

    async def unlock(
        self, topic: str, group: str, queues: Sequence[int] = (), *, timeout: Duration | None = None
    ) -> None:
        """Unlocks queues; without names all of this client. Raises TopicNotFound, GroupNotFound, InvalidField."""
        await self._wire.run(pull_calls.unlock_queues(topic, group, self._client_id, queues), timeout=timeout)
