"""Sends → requests: messages of one topic travel together, in their order, each with a result of its own.

    one call with many messages          one queue, in order: a batch for each 4 MiB
    calls of one turn of the event loop  one message each: as if it were one call, so 64 callers cost one request
    what a batch may not have            a request of its own: delays, halves, message groups, compressed bodies

One code answers for all of a batch; its offsets follow each other.
"""

from collections.abc import Iterable, Sequence
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

    topic: str
    members: list[int]
    messages: list[BrokerMessage]
    entries: list[Entry]

    def request(self, target: SendTarget) -> Request:
        """The request for one queue of the topic. Raises BadFormat."""
        first = self.messages[0]
        if len(self.messages) == 1:
            return sending.send(target, first.body, first.properties, first.born_ms, first.sys_flag)
        return sending.send_batch(target, self.entries, first.born_ms)

    def results(self, outcome: SendOutcome) -> list[tuple[int, int, int]]:
        """(place among the planned ones, queue id, offset) of each message. Raises BadFormat.

        A broker has to say as many ids as there are messages: else nobody knows which one is where.
        """
        if len(outcome.offset_ids) != len(self.members):
            raise BadFormat(f"{len(outcome.offset_ids)} ids for {len(self.members)} messages")
        first = outcome.queue_offset
        return [(member, outcome.queue_id, first + index) for index, member in enumerate(self.members)]


def planned(messages: Sequence[tuple[str, BrokerMessage]], bytes_max: int = batch.BODY_BYTES_MAX) -> list[Gathered]:
    """The requests for (topic, message) pairs: few, and for each topic in the order of its messages."""
    by_topic: dict[str, list[int]] = {}
    for place, (topic, _) in enumerate(messages):
        by_topic.setdefault(topic, []).append(place)
    return [
        gathered
        for topic, places in by_topic.items()
        for gathered in _of_topic(topic, [(place, messages[place][1]) for place in places], bytes_max)
    ]


def _of_topic(topic: str, messages: Iterable[tuple[int, BrokerMessage]], bytes_max: int) -> list[Gathered]:
    found: list[Gathered] = []
    room = -1  # bytes left in the last request; -1: it takes no other message
    for place, message in messages:
        last = found[-1] if found and room >= 0 else None
        entry = _entry(message, last.messages[0].born_ms if last else message.born_ms)
        size = batch.size_of(entry) if message.is_plain else 0
        if message.is_plain and last is not None and size <= room:
            last.members.append(place)
            last.messages.append(message)
            last.entries.append(entry)
            room -= size
            continue
        found.append(Gathered(topic, [place], [message], [_entry(message, message.born_ms)]))
        room = bytes_max - batch.size_of(found[-1].entries[0]) if message.is_plain else -1
    return found


def _entry(message: BrokerMessage, born_ms: int) -> Entry:
    """A message's entry in a batch. The request has one born time; a message with another one has it as a property."""
    if message.born_ms == born_ms:
        return Entry(message.body, message.text.encode())
    return Entry(message.body, f"{message.text}{own.BORN}\x01{message.born_ms}\x02".encode())
