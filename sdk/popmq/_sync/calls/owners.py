# Written by sdk/twin.py from popmq/_async/calls/owners.py: change that one.
"""Calls of owners: leases that outlive a process. See popmq.owner."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from popmq._given.fields import filter_row
from popmq._runtime.later import Later
from popmq._sync.client_parts import Namespace
from popmq.duration import Duration
from popmq.topic import Start

if TYPE_CHECKING:
    from popmq._calls import inspection_calls, owner_calls
    from popmq.owner import Attachment, Finished, OwnerLease, SealedBatch, Token
    from popmq.stats import Owner
else:
    inspection_calls = Later("popmq._calls.inspection_calls")
    owner_calls = Later("popmq._calls.owner_calls")


class OwnerCalls(Namespace):
    """Attaches owners, pops with sealed tokens, renews, and acks whole epochs."""

    def attach(
        self,
        group: str,
        owner: str,
        lease: Duration = 60.0,
        topic: str = "",
        start: Start | None = None,
        create_group: bool = False,
        *,
        timeout: Duration | None = None,
    ) -> Attachment:
        """Creates or takes over an owner (1–64 bytes) for `lease`; calls of older generations raise Fenced.

        `topic`: a group without a position there gets one now, at `start`. `create_group`: creates a missing group.
        Raises GroupNotFound, TopicNotFound, InvalidField.
        """
        return self._wire.run(
            owner_calls.attach_owner(group, owner, lease, topic, start, create_group), timeout=timeout
        )

    def renew(
        self, group: str, owner: str, generation: int, lease: Duration = 60.0, *, timeout: Duration | None = None
    ) -> OwnerLease:
        """Renews everything that the owner holds until `lease` from now. Raises OwnerNotFound, Fenced."""
        return self._wire.run(owner_calls.renew_owner(group, owner, generation, lease), timeout=timeout)

    def release(self, group: str, owner: str, generation: int = 0, *, timeout: Duration | None = None) -> int:
        """Ends the owner's lease now; returns the number of its messages. A token that is popped again leases
        its messages again, except those that other clients have popped.

        `generation` 0: of any generation, for operators. Raises OwnerNotFound, Fenced.
        """
        return self._wire.run(owner_calls.release_owner(group, owner, generation), timeout=timeout)

    def ack_up_to(
        self, group: str, owner: str, generation: int, epoch: int, *, timeout: Duration | None = None
    ) -> Finished:
        """Acks every token of the epochs up to `epoch`; returns the number of messages done, and of those that other
        clients had popped. Idempotent, also after the lease has expired. Raises OwnerNotFound, Fenced.
        """
        return self._wire.run(owner_calls.ack_up_to(group, owner, generation, epoch), timeout=timeout)

    def pop_sealed(
        self,
        topic: str,
        group: str,
        token: Token,
        max_messages: int = 1000,
        max_bytes: int = 0,
        lease: Duration = 60.0,
        *,
        columns: Collection[str] | None = None,
        tag: str | None = None,
        sql: str | None = None,
        timeout: Duration | None = None,
    ) -> SealedBatch:
        """Pops a token, and returns its messages as columns: sealed at the first pop, the same at each later one.

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
            client_id=self._client_id,
            columns=columns,
            filter=filter_row(tag, sql),
        )
        return self._wire.run(call, timeout=timeout)

    def list(self, group: str = "", *, timeout: Duration | None = None) -> list[Owner]:
        """Owners of a group, or of all. Raises GroupNotFound."""
        return self._wire.run(inspection_calls.owners(group), timeout=timeout)
