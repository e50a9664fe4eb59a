"""Owners as a client sees them: leases that outlive a process. See popmq.owner."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from popmq._async.transport.wire import Wire
from popmq._calls.later import Later
from popmq._calls.pop_calls import filter_row
from popmq.topic import Start

if TYPE_CHECKING:
    from popmq._calls import owner_calls
    from popmq.owner import Attachment, Availability, Finished, OwnerLease, Position, SealedBatch, Token
else:
    owner_calls = Later("popmq._calls.owner_calls")


class AsyncOwners:
    """Attach, pop with sealed tokens, renew, and finish whole epochs."""

    client_id: str
    _wire: Wire

    async def attach_owner(
        self,
        group: str,
        owner: str,
        lease: float = 60.0,
        topic: str = "",
        start: Start | None = None,
        create_group: bool = False,
    ) -> Attachment:
        """Makes or takes over an owner (1–64 bytes) for `lease` seconds; older generations are fenced from now on.

        `topic` fixes the group's start in it now, at `start` if it has none yet; `create_group` makes a missing group.
        Raises GroupNotFound, TopicNotFound, InvalidField.
        """
        return await self._wire.run(owner_calls.attach_owner(group, owner, lease, topic, start, create_group))

    async def renew_owner(self, group: str, owner: str, generation: int, lease: float = 60.0) -> OwnerLease:
        """Ends the lease of everything that the owner holds `lease` seconds from now. Raises OwnerNotFound, Fenced."""
        return await self._wire.run(owner_calls.renew_owner(group, owner, generation, lease))

    async def ack_up_to(self, group: str, owner: str, generation: int, epoch: int) -> Finished:
        """Finishes every token of epochs up to `epoch`; tells how many messages that finished, and how many others
        had popped. Idempotent, also after the lease has expired. Raises OwnerNotFound, Fenced.
        """
        return await self._wire.run(owner_calls.ack_up_to(group, owner, generation, epoch))

    async def release_owner(self, group: str, owner: str, generation: int = 0) -> int:
        """Ends the owner's lease now; returns the number of its messages. A token that is popped again leases
        its messages again, but for those that other clients have popped.

        `generation` 0: whatever it is, an operator's call. Raises OwnerNotFound, Fenced.
        """
        return await self._wire.run(owner_calls.release_owner(group, owner, generation))

    async def pop_sealed(
        self,
        topic: str,
        group: str,
        token: Token,
        max_messages: int = 1000,
        max_bytes: int = 0,
        lease: float = 60.0,
        *,
        columns: Collection[str] | None = None,
        tag: str | None = None,
        sql: str | None = None,
    ) -> SealedBatch:
        """The messages of a token, as columns: sealed at its first pop, the same at every later one until acked.

        Read chunk 0, 1, 2 … until `end`. `max_bytes`: 0 = 3 MiB, ≤ 16 MiB. `columns`: only these fields of
        Columns, and offset, are sent. `tag`, `sql`: the filter, as of `pop`.
        Raises Fenced, EpochAlreadyAcked, OwnerNotFound, TopicNotFound, GroupNotFound, FilterConflict, InvalidFilter.
        """
        call = owner_calls.pop_sealed(
            topic,
            group,
            token,
            max_messages=max_messages,
            max_bytes=max_bytes,
            lease=lease,
            client_id=self.client_id,
            columns=columns,
            filter=filter_row(tag, sql),
        )
        return await self._wire.run(call)

    async def wait_available(
        self,
        topic: str,
        group: str,
        min_ready: int = 1,
        wait: float = 0.5,
        upto: Position | None = None,
        *,
        tag: str | None = None,
        sql: str | None = None,
    ) -> Availability:
        """Waits up to `wait` seconds (≤ 60) until `min_ready` messages are deliverable; 0: answers at once. No lease.

        With `upto` only what lies below that position counts; `upto` of the answer is how far a bounded read may go
        now. `tag`, `sql`: the filter of the pops to come, which is refused here as there; it selects nothing.
        Raises TopicNotFound, GroupNotFound, FilterConflict, InvalidFilter.
        """
        filter = filter_row(tag, sql)
        return await self._wire.run(owner_calls.wait_available(topic, group, min_ready, wait, upto, filter))
