"""Sends → requests: messages of one topic travel together, in their order, each with a result of its own.

    one call with many messages          one queue, in order: a batch for each 4 MiB
    calls of one turn of the event loop  one message each: as if it were one call, so 64 callers cost one request
    what a batch may not have            a request of its own: delays, halves, message groups, compressed bodies

One code answers for all of a batch; its offsets follow each other.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import batch
from popmq_remoting.messages.batch import Entry
from popmq_remoting.requests import sending
from popmq_remoting.requests.sending import SendOutcome, SendTarget
from popmq_remoting.wire.command import Request
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.to_broker import BrokerMessage


class Gathered(NamedTuple):
    """The messages of one request, and their places among those that were planned. `entries`: of more than one."""

    members: Sequence[int]
    messages: Sequence[BrokerMessage]
    entries: Sequence[Entry]

    def request(self, target: SendTarget) -> Request:
        """The request for one queue of the topic. Raises BadFormat."""
        first = self.messages[0]
        if len(self.messages) == 1:
            return sending.send(target, first.body, first.properties, first.born_ms, first.sys_flag)
        return sending.send_batch(target, self.entries, first.born_ms)

    def check(self, outcome: SendOutcome) -> None:
        """Raises BadFormat unless a broker has said an id for each message: else nobody knows which one is where."""
        if len(outcome.offset_ids) != len(self.members):
            raise BadFormat(f"{len(outcome.offset_ids)} ids for {len(self.members)} messages")


def planned(messages: Sequence[BrokerMessage], bytes_max: int = batch.BODY_BYTES_MAX) -> list[Gathered]:
    """The requests for messages of one topic: few, and in the order of the messages."""
    found, begin = list[Gathered](), 0
    while begin < len(messages):
        end = begin + 1
        while messages[begin].is_plain and end < len(messages) and messages[end].is_plain:
            end += 1
        entries = _entries(messages[begin:end]) if end - begin > 1 else []
        if batch.size_of(entries) > bytes_max:
            end = begin + _fitting(entries, bytes_max)
        found.append(Gathered(range(begin, end), messages[begin:end], entries[: end - begin]))
        begin = end
    return found


def _fitting(entries: Sequence[Entry], bytes_max: int) -> int:
    """How many of the entries, from the first one on, are together no larger; at least one: its broker refuses it."""
    sizes = itertools.accumulate(batch.size_of([entry]) for entry in entries)
    return max(1, sum(1 for _ in itertools.takewhile(lambda size: size <= bytes_max, sizes)))


def _entries(messages: Sequence[BrokerMessage]) -> list[Entry]:
    """The request has one born time; a message with another one has it as a property."""
    whole = messages[0].born_ms
    return [
        (message.body, message.text.encode() if message.born_ms == whole else _with_birth(message))
        for message in messages
    ]


def _with_birth(message: BrokerMessage) -> bytes:
    return f"{message.text}{own.BORN}\x01{message.born_ms}\x02".encode()
