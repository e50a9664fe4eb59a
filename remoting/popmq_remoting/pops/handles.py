"""The handle of a popped message: eight words, which a broker gives (POP_CK) or a client makes of a pop's answer.

    ck-start pop-time invisible-ms revive-queue kind broker queue offset [place in the commit log]

Nothing about it is kept by the client, so any client can ack or change it. Brokers compare little: who hands handles to
others has to sign them.
"""

from __future__ import annotations

from typing import NamedTuple

from popmq_remoting.errors import BadFormat
from popmq_remoting.names import NORMAL, RETRY_V1, RETRY_V2, pop_topic
from popmq_remoting.wire.command import whole_number

#: The revive queue of ordered pops: their handles stay valid when the lease is renewed.
ORDERED_REVIVE_QUEUE = 999
_KINDS = (NORMAL, RETRY_V1, RETRY_V2)


class PopHandle(NamedTuple):
    """One lease of one message."""

    ck_start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    kind: str
    broker: str
    queue_id: int
    queue_offset: int

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue == ORDERED_REVIVE_QUEUE

    @property
    def lapses_ms(self) -> int:
        """When its lease ends, by the broker's clock. After a renewal of an ordered one, when it would have ended."""
        return self.pop_ms + self.invisible_ms

    def text(self) -> str:
        """The eight words."""
        return " ".join(map(str, self))

    def topic(self, topic: str, group: str) -> str:
        """The topic that an ack of it names, which may be a retry topic of this one."""
        return pop_topic(self.kind, topic, group)

    def renewed(self, pop_ms: int, invisible_ms: int, revive_queue: int) -> PopHandle:
        """The handle after a change of the lease. The old one of a normal delivery now does nothing at all."""
        if self.is_ordered:
            return self
        return self._replace(
            ck_start=self.queue_offset, pop_ms=pop_ms, invisible_ms=invisible_ms, revive_queue=revive_queue
        )


def read(text: str) -> PopHandle:
    """The handle that the words are. A ninth, the official proxy's, is left out. Raises BadFormat."""
    words = text.split(" ")
    if len(words) not in (8, 9) or words[4] not in _KINDS or not words[5]:
        raise BadFormat(f"{text[:80]!r} is no handle of a popped message")
    start, pop_ms, invisible_ms, revive, queue, offset = (
        whole_number(words[index], "a word of the handle") for index in (0, 1, 2, 3, 6, 7)
    )
    return PopHandle(start, pop_ms, invisible_ms, revive, words[4], words[5], queue, offset)
