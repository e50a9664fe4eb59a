"""Transactions as their producer sees them.

send ──▶ half message ──┬─ commit ────▶ visible, or delayed
                        ├─ rollback ──▶ gone
                        └─ neither: the broker asks the producers of the topic, first after 6 s, then every 30 s;
                           after 15 answers of "not known" the message goes to TRANS_CHECK_MAX_TIME_TOPIC
"""

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from popmq.message import Delivery

#: How a transaction ends.
Resolution = Literal["commit", "rollback"]


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """The broker's question: what became of this half message?"""

    transaction_id: str
    topic: str
    check: int  # this check's number, from 1 to 15
    message: Delivery  # as it was sent, with no lease


#: Answers a check: a Resolution, or None for "not known yet, ask again". With an AsyncClient it may be a coroutine
#: function.
OnCheck = Callable[[TransactionCheck], Any]


@dataclass(frozen=True, slots=True)
class MessagePreview:
    """What a list shows of a delayed or half message. `body`: its first 256 bytes; `body_bytes`: of the whole."""

    keys: tuple[str, ...]
    tag: str
    body: bytes
    body_bytes: int

    def text(self) -> str:
        """The body as text, without a last character that was cut. Raises UnicodeDecodeError when it is not UTF-8."""
        return codecs.getincrementaldecoder("utf-8")().decode(self.body, final=len(self.body) == self.body_bytes)


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message that is not ended."""

    topic: str
    message_id: str
    transaction_id: str
    stored_ms: int
    checks: int  # counted so far: those that reached a producer
    next_check_ms: int
    preview: "MessagePreview | None" = None  # None for an access key that may not read the topic


@dataclass(frozen=True, slots=True)
class HalfMessages:
    """What `client.transactions.list` answers, in each topic oldest first; `total` counts also what was not asked."""

    messages: Sequence[HalfMessage]
    total: int
