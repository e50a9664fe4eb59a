"""What the answer of a pop says about its messages, and the handles and attempts that follow from it.

    startOffsetInfo   kind queue offset;…         where the CheckPoint of each queue starts
    msgOffsetInfo     kind queue o1,o2,…;…        the offsets of the messages, in the order of the body
    orderCountInfo    kind queue n;…              ordered: attempts so far of the queue,
                      kind qo{queue}%{offset} n   or of one message

A message that is retried has its handle with it (POP_CK): the broker wrote the origin's topic into it, so that neither
its topic nor its queue tells where the broker has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import properties
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.names import kind_of
from popmq_remoting.pops import handles
from popmq_remoting.pops.handles import PopHandle
from popmq_remoting.wire.command import whole_number

#: (kind, queue) or (kind, "qo{queue}%{offset}").
Key = tuple[str, str]


class PoppedMessage(NamedTuple):
    """A message with its handle. `attempt` counts from 1."""

    message: StoredMessage
    properties: dict[str, str]
    handle: PopHandle
    attempt: int


class PopInfos(NamedTuple):
    """The header of a pop's answer."""

    broker: str
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    starts: dict[Key, int]
    offsets: dict[Key, list[int]]
    orders: dict[Key, int]


def read_starts(text: str) -> dict[Key, int]:
    """startOffsetInfo or orderCountInfo. Raises BadFormat."""
    return {key: whole_number(value, "a number of the pop's answer") for key, value in _entries(text).items()}


def read_offsets(text: str) -> dict[Key, list[int]]:
    """msgOffsetInfo. Raises BadFormat."""
    return {
        key: [whole_number(each, "an offset of the pop's answer") for each in value.split(",")]
        for key, value in _entries(text).items()
    }


def popped(messages: Sequence[StoredMessage], infos: PopInfos) -> list[PoppedMessage]:
    """The messages with their handles. Raises BadFormat if the answer does not say where one of them is."""
    queues: dict[tuple[str, int], Iterator[PopHandle]] = {}
    rows = []
    for message in messages:
        own = properties.read(message.properties)
        if "POP_CK" in own:
            handle: PopHandle | None = handles.read(own["POP_CK"])
        else:
            queue = (message.topic, message.queue_id)
            if queue not in queues:
                queues[queue] = _handles(infos, (kind_of(message.topic), str(message.queue_id)))
            handle = next(queues[queue], None)
        if handle is None:
            raise BadFormat(f"the pop's answer does not say where all messages of queue {message.queue_id} are")
        ordered = handle.revive_queue == handles.ORDERED_REVIVE_QUEUE
        attempt = _attempt(handle, infos.orders) if ordered else message.reconsume_times + 1
        rows.append(PoppedMessage(message, own, handle, attempt))
    return rows


def _handles(infos: PopInfos, key: Key) -> Iterator[PopHandle]:
    """The handles of a queue's messages, in their order."""
    start = infos.starts.get(key)
    if start is None:
        return
    kind, queue_id = key[0], int(key[1])
    for offset in infos.offsets.get(key, ()):
        yield PopHandle(
            start, infos.pop_ms, infos.invisible_ms, infos.revive_queue, kind, infos.broker, queue_id, offset
        )


def _attempt(handle: PopHandle, orders: dict[Key, int]) -> int:
    """Which attempt an ordered delivery is."""
    single = (handle.kind, f"qo{handle.queue_id}%{handle.queue_offset}")
    return orders.get(single, orders.get((handle.kind, str(handle.queue_id)), 0)) + 1


def _entries(text: str) -> dict[Key, str]:
    found: dict[Key, str] = {}
    for entry in filter(None, text.split(";")):
        words = entry.split(" ")
        if len(words) != 3 or (words[0], words[1]) in found:
            raise BadFormat(f"{entry[:60]!r} in a pop's answer has not three words, or comes twice")
        found[words[0], words[1]] = words[2]
    return found
