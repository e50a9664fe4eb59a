"""Recall handles: what takes a delayed message back before its time. Self-contained, they name their broker.

base64url("v1 topic broker timestamp message-id")
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from popmq_remoting.errors import BadFormat
from popmq_remoting.wire.command import whole_number

_VERSION = "v1"
#: Names are 255 characters at most.
_CHARACTERS_MAX = 2048


class BrokerRecallHandle(NamedTuple):
    """Which message, of which broker, at which time."""

    topic: str
    broker: str
    deliver_at_ms: int
    message_id: str

    def text(self) -> str:
        """As brokers take it."""
        words = " ".join((_VERSION, self.topic, self.broker, str(self.deliver_at_ms), self.message_id))
        return base64.urlsafe_b64encode(words.encode()).decode()


def read(text: str) -> BrokerRecallHandle:
    """What a recall handle names. Raises BadFormat."""
    if len(text) > _CHARACTERS_MAX:
        raise BadFormat(f"a recall handle of {len(text)} characters")
    try:
        words = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError):
        raise BadFormat("a recall handle that is no base64") from None
    if len(words) != 5 or words[0] != _VERSION:
        raise BadFormat("a recall handle that does not name topic, broker, time and message")
    return BrokerRecallHandle(words[1], words[2], whole_number(words[3], "the recall handle's time"), words[4])
