"""Acks of many messages of one broker in one request (200151): a bit for each offset behind the CheckPoint's start."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from popmq_remoting.errors import BadFormat
from popmq_remoting.pops.handles import PopHandle

#: Offsets that one CheckPoint spans. A pop returns 32 messages; filters may leave out many between them.
SPAN_MAX = 1 << 20


class PopAck(NamedTuple):
    """One message to ack: its handle, its group, and the topic of the handle, which is never a retry topic."""

    topic: str
    group: str
    handle: PopHandle


def batch_body(broker: str, acks: Iterable[PopAck]) -> bytes:
    """The body of a batch ack to one broker. Raises BadFormat for a handle that no broker gave, or another one gave.

    One code answers for all; entries that the broker cannot use are left out silently. Ordered ones are acked singly.
    """
    bits: dict[tuple[str, str, tuple[Any, ...]], int] = {}  # by topic, group and all of the handle but its offset
    for topic, group, handle in acks:
        distance = handle.queue_offset - handle.ck_start
        if handle.broker != broker or not 0 <= distance < SPAN_MAX:
            raise BadFormat(f"the handle {handle.text()!r} is not of broker {broker}, or no broker gave it")
        key = (topic, group, handle[:-1])
        bits[key] = bits.get(key, 0) | 1 << distance
    entries = [_entry(group, topic, PopHandle._make((*words, 0)), mask) for (topic, group, words), mask in bits.items()]
    return json.dumps({"brokerName": broker, "acks": entries}, separators=(",", ":")).encode()


def _entry(group: str, topic: str, handle: PopHandle, mask: int) -> dict[str, str | int]:
    raw = mask.to_bytes((mask.bit_length() + 7) // 8, "little")
    return {
        "c": group,
        "t": topic,
        "r": handle.kind,
        "so": handle.ck_start,
        "q": handle.queue_id,
        "rq": handle.revive_queue,
        "pt": handle.pop_ms,
        "it": handle.invisible_ms,
        "b": base64.b64encode(raw).decode(),
    }
