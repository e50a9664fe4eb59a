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
    def topics(self) -> _topics.AsyncTopicCalls:
        """Topics and their settings."""
        return _topics.AsyncTopicCalls(self._wire, self.client_id)

    @cached_property
    def groups(self) -> _groups.AsyncGroupCalls:
        """Groups, their settings, and how each reads its topics."""
        return _groups.AsyncGroupCalls(self._wire, self.client_id)

    @cached_property
    def message_groups(self) -> _groups.AsyncMessageGroupCalls:
        """Message groups of FIFO topics that wait, are locked or stopped."""
        return _groups.AsyncMessageGroupCalls(self._wire, self.client_id)

    @cached_property
    def messages(self) -> _messages.AsyncMessageCalls:
        """Stored messages: found, explained, read without a lease; delayed ones are recalled."""
        return _messages.AsyncMessageCalls(self._wire, self.client_id)

    @cached_property
    def dead_letters(self) -> _messages.AsyncDeadLetterCalls:
        """Dead letters of a group."""
        return _messages.AsyncDeadLetterCalls(self._wire, self.client_id)

    @cached_property
    def offsets(self) -> _offsets.AsyncOffsetCalls:
        """The position of a group in each queue of a topic."""
        return _offsets.AsyncOffsetCalls(self._wire, self.client_id)

    @cached_property
    def queues(self) -> _offsets.AsyncQueueCalls:
        """The queues that this client reads by offset, and their locks."""
        return _offsets.AsyncQueueCalls(self._wire, self.client_id)

    @cached_property
    def leases(self) -> _broker.AsyncLeaseCalls:
        """Leases and backoffs of all clients."""
        return _broker.AsyncLeaseCalls(self._wire, self.client_id)

    @cached_property
    def owners(self) -> _owners.AsyncOwnerCalls:
        """Leases that outlive a process, for a reader that must read the same again."""
        return _owners.AsyncOwnerCalls(self._wire, self.client_id)

    @cached_property
    def sessions(self) -> _broker.AsyncSessionCalls:
        """Clients of the broker, and what official RocketMQ 5 clients report."""
        return _broker.AsyncSessionCalls(self._wire, self.client_id)

    @cached_property
    def schedules(self) -> _schedules.AsyncScheduleCalls:
        """Messages that the broker sends by cron."""
        return _schedules.AsyncScheduleCalls(self._wire, self.client_id)

    @cached_property
    def transactions(self) -> _transactions.AsyncTransactionCalls:
        """Half messages that are not ended, and the answer to check-backs."""
        return _transactions.AsyncTransactionCalls(self._wire, self.client_id, self._checker)

    @cached_property
    def sinks(self) -> _sinks.AsyncSinkCalls:
        """Batches of messages that are written exactly once."""
        return _sinks.AsyncSinkCalls(self._wire, self.client_id, self._numbering)

    @cached_property
    def access_keys(self) -> _broker.AsyncAccessKeyCalls:
        """Access keys of the broker, without their secrets."""
        return _broker.AsyncAccessKeyCalls(self._wire, self.client_id)

    @cached_property
    def broker(self) -> _broker.AsyncBrokerCalls:
        """Numbers and the store of the whole broker."""
        return _broker.AsyncBrokerCalls(self._wire, self.client_id)

    if not TYPE_CHECKING:  # a type checker reports former names, as it does any name that is not there

        def __getattr__(self, name: str) -> object:
            from popmq._given.former_names import by_former_name

            return by_former_name(self, name)
