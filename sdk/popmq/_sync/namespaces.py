# Written by sdk/twin.py from popmq/_async/namespaces.py: change that one.
"""The namespaces of a client: its calls beside sending and reading, by what they are about."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from popmq._runtime.later import Later
from popmq._sync.client_parts import ClientParts

if TYPE_CHECKING:
    from popmq._sync.calls import broker as _broker
    from popmq._sync.calls import groups as _groups
    from popmq._sync.calls import messages as _messages
    from popmq._sync.calls import offsets as _offsets
    from popmq._sync.calls import owners as _owners
    from popmq._sync.calls import schedules as _schedules
    from popmq._sync.calls import sinks as _sinks
    from popmq._sync.calls import topics as _topics
    from popmq._sync.calls import transactions as _transactions
else:
    _broker = Later("popmq._sync.calls.broker")
    _groups = Later("popmq._sync.calls.groups")
    _messages = Later("popmq._sync.calls.messages")
    _offsets = Later("popmq._sync.calls.offsets")
    _owners = Later("popmq._sync.calls.owners")
    _schedules = Later("popmq._sync.calls.schedules")
    _sinks = Later("popmq._sync.calls.sinks")
    _topics = Later("popmq._sync.calls.topics")
    _transactions = Later("popmq._sync.calls.transactions")


class Namespaces(ClientParts):
    """Each is made, and its module imported, when it is first used."""

    @cached_property
    def topics(self) -> _topics.TopicCalls:
        """Topics and their settings."""
        return _topics.TopicCalls(self._wire, self.client_id)

    @cached_property
    def groups(self) -> _groups.GroupCalls:
        """Groups, their settings, and how each reads its topics."""
        return _groups.GroupCalls(self._wire, self.client_id)

    @cached_property
    def message_groups(self) -> _groups.MessageGroupCalls:
        """Message groups of FIFO topics that wait, are locked or stopped."""
        return _groups.MessageGroupCalls(self._wire, self.client_id)

    @cached_property
    def messages(self) -> _messages.MessageCalls:
        """Stored messages: found, explained, read without a lease; delayed ones are recalled."""
        return _messages.MessageCalls(self._wire, self.client_id)

    @cached_property
    def dead_letters(self) -> _messages.DeadLetterCalls:
        """Dead letters of a group."""
        return _messages.DeadLetterCalls(self._wire, self.client_id)

    @cached_property
    def offsets(self) -> _offsets.OffsetCalls:
        """The position of a group in each queue of a topic."""
        return _offsets.OffsetCalls(self._wire, self.client_id)

    @cached_property
    def queues(self) -> _offsets.QueueCalls:
        """The queues that this client reads by offset, and their locks."""
        return _offsets.QueueCalls(self._wire, self.client_id)

    @cached_property
    def leases(self) -> _broker.LeaseCalls:
        """Leases and backoffs of all clients."""
        return _broker.LeaseCalls(self._wire, self.client_id)

    @cached_property
    def owners(self) -> _owners.OwnerCalls:
        """Leases that outlive a process, for a reader that must read the same again."""
        return _owners.OwnerCalls(self._wire, self.client_id)

    @cached_property
    def sessions(self) -> _broker.SessionCalls:
        """Clients of the broker, and what official RocketMQ 5 clients report."""
        return _broker.SessionCalls(self._wire, self.client_id)

    @cached_property
    def schedules(self) -> _schedules.ScheduleCalls:
        """Messages that the broker sends by cron."""
        return _schedules.ScheduleCalls(self._wire, self.client_id)

    @cached_property
    def transactions(self) -> _transactions.TransactionCalls:
        """Half messages that are not ended, and the answer to check-backs."""
        return _transactions.TransactionCalls(self._wire, self.client_id, self._checker)

    @cached_property
    def sinks(self) -> _sinks.SinkCalls:
        """Batches of messages that are written exactly once."""
        return _sinks.SinkCalls(self._wire, self.client_id, self._numbering)

    @cached_property
    def access_keys(self) -> _broker.AccessKeyCalls:
        """Access keys of the broker, without their secrets."""
        return _broker.AccessKeyCalls(self._wire, self.client_id)

    @cached_property
    def broker(self) -> _broker.BrokerCalls:
        """Numbers and the store of the whole broker."""
        return _broker.BrokerCalls(self._wire, self.client_id)

    if not TYPE_CHECKING:  # a type checker reports former names, as it does any name that is not there

        def __getattr__(self, name: str) -> object:
            from popmq._given.former_names import by_former_name

            return by_former_name(self, name)
