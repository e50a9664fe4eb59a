"""What the answer of a pop says about its messages, and the handles and attempts that follow from it.

    startOffsetInfo   kind queue offset;…         where the CheckPoint of each queue starts
    msgOffsetInfo     kind queue o1,o2,…;…        the offsets of the messages, in the order of the body
    orderCountInfo    kind queue n;…              ordered: attempts so far of the queue,
                      kind qo{queue}%{offset} n   or of one message

A message that is retried has its handle with it (POP_CK): the broker wrote the origin's topic into it, so that neither
its topic nor its queue tells where the broker has it.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    taken: dict[Key, int] = {}
    rows = []
    for message in messages:
        own = properties.read(message.properties)
        if "POP_CK" in own:
            handle = handles.read(own["POP_CK"])
        else:
            key = (kind_of(message.topic), str(message.queue_id))
            index = taken.get(key, 0)
            taken[key] = index + 1
            handle = _handle(infos, key, index)
        rows.append(PoppedMessage(message, own, handle, _attempt(message, handle, infos.orders)))
    return rows


def _handle(infos: PopInfos, key: Key, index: int) -> PopHandle:
    offsets = infos.offsets.get(key, [])
    if key not in infos.starts or index >= len(offsets):
        raise BadFormat(f"the pop's answer does not say where message {index} of queue {key[1]} is")
    return PopHandle(
        infos.starts[key],
        infos.pop_ms,
        infos.invisible_ms,
        infos.revive_queue,
        key[0],
        infos.broker,
        int(key[1]),
        offsets[index],
    )


def _attempt(message: StoredMessage, handle: PopHandle, orders: dict[Key, int]) -> int:
    if not handle.is_ordered:
        return message.reconsume_times + 1
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
