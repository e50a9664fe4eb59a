"""The namespaces of a client: its calls beside sending and reading, by what they are about."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from popmq._async.client_parts import ClientParts
from popmq._runtime.later import Later

if TYPE_CHECKING:
    from popmq._async.calls import broker as _broker
    from popmq._async.calls import groups as _groups
    from popmq._async.calls import messages as _messages
    from popmq._async.calls import offsets as _offsets
    from popmq._async.calls import owners as _owners
    from popmq._async.calls import schedules as _schedules
    from popmq._async.calls import sinks as _sinks
    from popmq._async.calls import topics as _topics
    from popmq._async.calls import transactions as _transactions
    from popmq._async.calls.broker import AsyncAccessKeyCalls, AsyncBrokerCalls, AsyncLeaseCalls, AsyncSessionCalls
    from popmq._async.calls.groups import AsyncGroupCalls, AsyncMessageGroupCalls
    from popmq._async.calls.messages import AsyncDeadLetterCalls, AsyncMessageCalls
    from popmq._async.calls.offsets import AsyncOffsetCalls, AsyncQueueCalls
    from popmq._async.calls.owners import AsyncOwnerCalls
    from popmq._async.calls.schedules import AsyncScheduleCalls
    from popmq._async.calls.sinks import AsyncSinkCalls
    from popmq._async.calls.topics import AsyncTopicCalls
    from popmq._async.calls.transactions import AsyncTransactionCalls
else:
    _broker = Later("popmq._async.calls.broker")
    _groups = Later("popmq._async.calls.groups")
    _messages = Later("popmq._async.calls.messages")
    _offsets = Later("popmq._async.calls.offsets")
    _owners = Later("popmq._async.calls.owners")
    _schedules = Later("popmq._async.calls.schedules")
    _sinks = Later("popmq._async.calls.sinks")
    _topics = Later("popmq._async.calls.topics")
    _transactions = Later("popmq._async.calls.transactions")


class AsyncNamespaces(ClientParts):
    """Each is made, and its module imported, when it is first used."""

    @cached_property
    def topics(self) -> AsyncTopicCalls:
        """Topics and their settings."""
        return _topics.AsyncTopicCalls(self._wire, self.client_id)

    @cached_property
    def groups(self) -> AsyncGroupCalls:
        """Groups, their settings, and how each reads its topics."""
        return _groups.AsyncGroupCalls(self._wire, self.client_id)

    @cached_property
    def message_groups(self) -> AsyncMessageGroupCalls:
        """Message groups of FIFO topics that wait, are locked or stopped."""
        return _groups.AsyncMessageGroupCalls(self._wire, self.client_id)

    @cached_property
    def messages(self) -> AsyncMessageCalls:
        """Stored messages: found, explained, read without a lease; delayed ones are recalled."""
        return _messages.AsyncMessageCalls(self._wire, self.client_id)

    @cached_property
    def dead_letters(self) -> AsyncDeadLetterCalls:
        """Dead letters of a group."""
        return _messages.AsyncDeadLetterCalls(self._wire, self.client_id)

    @cached_property
    def offsets(self) -> AsyncOffsetCalls:
        """The position of a group in each queue of a topic."""
        return _offsets.AsyncOffsetCalls(self._wire, self.client_id)

    @cached_property
    def queues(self) -> AsyncQueueCalls:
        """The queues that this client reads by offset, and their locks."""
        return _offsets.AsyncQueueCalls(self._wire, self.client_id)

    @cached_property
    def leases(self) -> AsyncLeaseCalls:
        """Leases and backoffs of all clients."""
        return _broker.AsyncLeaseCalls(self._wire, self.client_id)

    @cached_property
    def owners(self) -> AsyncOwnerCalls:
        """Leases that outlive a process, for a reader that must read the same again."""
        return _owners.AsyncOwnerCalls(self._wire, self.client_id)

    @cached_property
    def sessions(self) -> AsyncSessionCalls:
        """Clients of the broker, and what official RocketMQ 5 clients report."""
        return _broker.AsyncSessionCalls(self._wire, self.client_id)

    @cached_property
    def schedules(self) -> AsyncScheduleCalls:
        """Messages that the broker sends by cron."""
        return _schedules.AsyncScheduleCalls(self._wire, self.client_id)

    @cached_property
    def transactions(self) -> AsyncTransactionCalls:
        """Half messages that are not ended, and the answer to check-backs."""
        return _transactions.AsyncTransactionCalls(self._wire, self.client_id, self._checker)

    @cached_property
    def sinks(self) -> AsyncSinkCalls:
        """Batches of messages that are written exactly once."""
        return _sinks.AsyncSinkCalls(self._wire, self.client_id, self._numbering)

    @cached_property
    def access_keys(self) -> AsyncAccessKeyCalls:
        """Access keys of the broker, without their secrets."""
        return _broker.AsyncAccessKeyCalls(self._wire, self.client_id)

    @cached_property
    def broker(self) -> AsyncBrokerCalls:
        """Numbers and the store of the whole broker."""
        return _broker.AsyncBrokerCalls(self._wire, self.client_id)
