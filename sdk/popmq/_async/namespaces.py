"""The namespaces of a client: its calls beside sending and reading, by what they are about."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from popmq._async.client_parts import ClientParts

if TYPE_CHECKING:
    from popmq._async.calls.broker import AsyncAccessKeyCalls, AsyncBrokerCalls, AsyncLeaseCalls, AsyncSessionCalls
    from popmq._async.calls.groups import AsyncGroupCalls, AsyncMessageGroupCalls
    from popmq._async.calls.messages import AsyncDeadLetterCalls, AsyncMessageCalls
    from popmq._async.calls.offsets import AsyncOffsetCalls, AsyncQueueCalls
    from popmq._async.calls.owners import AsyncOwnerCalls
    from popmq._async.calls.schedules import AsyncScheduleCalls
    from popmq._async.calls.sinks import AsyncSinkCalls
    from popmq._async.calls.topics import AsyncTopicCalls
    from popmq._async.calls.transactions import AsyncTransactionCalls


class AsyncNamespaces(ClientParts):
    """Each is made, and its module imported, when it is first used."""

    @cached_property
    def topics(self) -> AsyncTopicCalls:
        """Topics and their settings."""
        from popmq._async.calls.topics import AsyncTopicCalls

        return AsyncTopicCalls(self._wire, self.client_id)

    @cached_property
    def groups(self) -> AsyncGroupCalls:
        """Groups, their settings, and how each reads its topics."""
        from popmq._async.calls.groups import AsyncGroupCalls

        return AsyncGroupCalls(self._wire, self.client_id)

    @cached_property
    def message_groups(self) -> AsyncMessageGroupCalls:
        """Message groups of FIFO topics that wait, are locked or stopped."""
        from popmq._async.calls.groups import AsyncMessageGroupCalls

        return AsyncMessageGroupCalls(self._wire, self.client_id)

    @cached_property
    def messages(self) -> AsyncMessageCalls:
        """Stored messages: found, explained, read without a lease; delayed ones are recalled."""
        from popmq._async.calls.messages import AsyncMessageCalls

        return AsyncMessageCalls(self._wire, self.client_id)

    @cached_property
    def dead_letters(self) -> AsyncDeadLetterCalls:
        """Dead letters of a group."""
        from popmq._async.calls.messages import AsyncDeadLetterCalls

        return AsyncDeadLetterCalls(self._wire, self.client_id)

    @cached_property
    def offsets(self) -> AsyncOffsetCalls:
        """The position of a group in each queue of a topic."""
        from popmq._async.calls.offsets import AsyncOffsetCalls

        return AsyncOffsetCalls(self._wire, self.client_id)

    @cached_property
    def queues(self) -> AsyncQueueCalls:
        """The queues that this client reads by offset, and their locks."""
        from popmq._async.calls.offsets import AsyncQueueCalls

        return AsyncQueueCalls(self._wire, self.client_id)

    @cached_property
    def leases(self) -> AsyncLeaseCalls:
        """Leases and backoffs of all clients."""
        from popmq._async.calls.broker import AsyncLeaseCalls

        return AsyncLeaseCalls(self._wire, self.client_id)

    @cached_property
    def owners(self) -> AsyncOwnerCalls:
        """Leases that outlive a process, for a reader that must read the same again."""
        from popmq._async.calls.owners import AsyncOwnerCalls

        return AsyncOwnerCalls(self._wire, self.client_id)

    @cached_property
    def sessions(self) -> AsyncSessionCalls:
        """Clients of the broker, and what official RocketMQ 5 clients report."""
        from popmq._async.calls.broker import AsyncSessionCalls

        return AsyncSessionCalls(self._wire, self.client_id)

    @cached_property
    def schedules(self) -> AsyncScheduleCalls:
        """Messages that the broker sends by cron."""
        from popmq._async.calls.schedules import AsyncScheduleCalls

        return AsyncScheduleCalls(self._wire, self.client_id)

    @cached_property
    def transactions(self) -> AsyncTransactionCalls:
        """Half messages that are not ended, and the answer to check-backs."""
        from popmq._async.calls.transactions import AsyncTransactionCalls

        return AsyncTransactionCalls(self._wire, self.client_id, self._checker)

    @cached_property
    def sinks(self) -> AsyncSinkCalls:
        """Batches of messages that are written exactly once."""
        from popmq._async.calls.sinks import AsyncSinkCalls

        return AsyncSinkCalls(self._wire, self.client_id, self._numbering)

    @cached_property
    def access_keys(self) -> AsyncAccessKeyCalls:
        """Access keys of the broker, without their secrets."""
        from popmq._async.calls.broker import AsyncAccessKeyCalls

        return AsyncAccessKeyCalls(self._wire, self.client_id)

    @cached_property
    def broker(self) -> AsyncBrokerCalls:
        """Numbers and the store of the whole broker."""
        from popmq._async.calls.broker import AsyncBrokerCalls

        return AsyncBrokerCalls(self._wire, self.client_id)
