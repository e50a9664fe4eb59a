# Written by sdk/twin.py from popmq/_async/namespaces.py: change that one.
"""The namespaces of a client: its calls beside sending and reading, by what they are about."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from popmq._sync.client_parts import ClientParts

if TYPE_CHECKING:
    from popmq._sync.calls.broker import AccessKeyCalls, BrokerCalls, LeaseCalls, SessionCalls
    from popmq._sync.calls.groups import GroupCalls, MessageGroupCalls
    from popmq._sync.calls.messages import DeadLetterCalls, MessageCalls
    from popmq._sync.calls.offsets import OffsetCalls, QueueCalls
    from popmq._sync.calls.owners import OwnerCalls
    from popmq._sync.calls.schedules import ScheduleCalls
    from popmq._sync.calls.sinks import SinkCalls
    from popmq._sync.calls.topics import TopicCalls
    from popmq._sync.calls.transactions import TransactionCalls


class Namespaces(ClientParts):
    """Each is made, and its module imported, when it is first used."""

    @cached_property
    def topics(self) -> TopicCalls:
        """Topics and their settings."""
        from popmq._sync.calls.topics import TopicCalls

        return TopicCalls(self._wire, self.client_id)

    @cached_property
    def groups(self) -> GroupCalls:
        """Groups, their settings, and how each reads its topics."""
        from popmq._sync.calls.groups import GroupCalls

        return GroupCalls(self._wire, self.client_id)

    @cached_property
    def message_groups(self) -> MessageGroupCalls:
        """Message groups of FIFO topics that wait, are locked or stopped."""
        from popmq._sync.calls.groups import MessageGroupCalls

        return MessageGroupCalls(self._wire, self.client_id)

    @cached_property
    def messages(self) -> MessageCalls:
        """Stored messages: found, explained, read without a lease; delayed ones are recalled."""
        from popmq._sync.calls.messages import MessageCalls

        return MessageCalls(self._wire, self.client_id)

    @cached_property
    def dead_letters(self) -> DeadLetterCalls:
        """Dead letters of a group."""
        from popmq._sync.calls.messages import DeadLetterCalls

        return DeadLetterCalls(self._wire, self.client_id)

    @cached_property
    def offsets(self) -> OffsetCalls:
        """The position of a group in each queue of a topic."""
        from popmq._sync.calls.offsets import OffsetCalls

        return OffsetCalls(self._wire, self.client_id)

    @cached_property
    def queues(self) -> QueueCalls:
        """The queues that this client reads by offset, and their locks."""
        from popmq._sync.calls.offsets import QueueCalls

        return QueueCalls(self._wire, self.client_id)

    @cached_property
    def leases(self) -> LeaseCalls:
        """Leases and backoffs of all clients."""
        from popmq._sync.calls.broker import LeaseCalls

        return LeaseCalls(self._wire, self.client_id)

    @cached_property
    def owners(self) -> OwnerCalls:
        """Leases that outlive a process, for a reader that must read the same again."""
        from popmq._sync.calls.owners import OwnerCalls

        return OwnerCalls(self._wire, self.client_id)

    @cached_property
    def sessions(self) -> SessionCalls:
        """Clients of the broker, and what official RocketMQ 5 clients report."""
        from popmq._sync.calls.broker import SessionCalls

        return SessionCalls(self._wire, self.client_id)

    @cached_property
    def schedules(self) -> ScheduleCalls:
        """Messages that the broker sends by cron."""
        from popmq._sync.calls.schedules import ScheduleCalls

        return ScheduleCalls(self._wire, self.client_id)

    @cached_property
    def transactions(self) -> TransactionCalls:
        """Half messages that are not ended, and the answer to check-backs."""
        from popmq._sync.calls.transactions import TransactionCalls

        return TransactionCalls(self._wire, self.client_id, self._checker)

    @cached_property
    def sinks(self) -> SinkCalls:
        """Batches of messages that are written exactly once."""
        from popmq._sync.calls.sinks import SinkCalls

        return SinkCalls(self._wire, self.client_id, self._numbering)

    @cached_property
    def access_keys(self) -> AccessKeyCalls:
        """Access keys of the broker, without their secrets."""
        from popmq._sync.calls.broker import AccessKeyCalls

        return AccessKeyCalls(self._wire, self.client_id)

    @cached_property
    def broker(self) -> BrokerCalls:
        """Numbers and the store of the whole broker."""
        from popmq._sync.calls.broker import BrokerCalls

        return BrokerCalls(self._wire, self.client_id)
