"""Places messages by the type of their topic, where plain sends need more than the next queue.

    plain                     the next queue in turn, together with its request (send.py does this itself)
    message group   FIFO      the queue of the group's hash: one group, one queue, one order
    priority        PRIORITY  the queue of its number; higher numbers go to the last queue (priority.py)
    lite topic      LITE      the one queue of the lite topic, created if it does not exist (lite_send.py)
    delayed         all types but NORMAL and LITE: `sched`, until it is due (delay.py)
    half message    all types but NORMAL and LITE: `half`, until it is committed (transaction.py), then as any other
    known id        topics with unique ids: stored once (unique.py)

A topic refuses entries that its type does not support; the other entries of the request are stored.
"""

from typing import cast

from popmq_server.contract.commands import Place
from popmq_server.embedded.rules.sending import delay, transaction, unique
from popmq_server.embedded.rules.topics import quotas, registry
from popmq_server.embedded.rules.topics.topic import enqueue, rotate
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import U64
from popmq_server.errors import Refused
from popmq_server.values import priority, topic_types
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing, hash8
from popmq_server.values.records import Topic

#: The rare fields of a message that has none of them.
NO_EXTRA = Extra()


def is_plain(topic: Topic, messages: tuple[Outgoing, ...]) -> bool:
    """Whether a request needs nothing from this module: the fast path of most messages."""
    if topic.type in ("FIFO", "PRIORITY", "LITE") or topic.unique_ids_ms:
        return False
    if topic.message_bytes_max and any(quotas.too_large(topic, message) for message in messages):
        return False
    return {message.extra for message in messages} == {None}


class Placing:
    """Places messages in the queues of a topic. For LITE topics see lite_send.py."""

    def __init__(self, tx: Tx, topic: Topic) -> None:
        self._tx = tx
        self._topic = topic

    def place(self, messages: tuple[Outgoing, ...]) -> tuple[Place | Refused, ...]:
        """Stores the valid messages; returns the place of each, in order, or why it is refused."""
        places: list[Place | Refused] = []
        new: list[int] = []
        visible: list[tuple[int, Outgoing]] = []
        repeats: list[tuple[int, int]] = []
        ids = unique.Ids(self._tx, self._topic)
        for number, message in enumerate(messages):
            done: Place | Refused | None = self._refusal(message)
            if done is None and (first := ids.first(message, number)) != number:
                repeats.append((number, first))
                done = Place()
            done = done or ids.known(message)
            if done is None:
                if message.extra is not None and message.extra.ttl_ms:
                    self._topic = registry.note_ttl(self._tx, self._topic)
                new.append(number)
                if (done := self._kept(message)) is None:
                    visible.append((number, message))
            places.append(done or Place())
        for (number, _), stored in zip(visible, self.make_visible(visible), strict=True):
            places[number] = stored
        for number in new:
            ids.remember(messages[number], cast(Place, places[number]))
        for number, first in repeats:
            stored_once = places[first]
            places[number] = stored_once._replace(duplicate=True) if isinstance(stored_once, Place) else stored_once
        return tuple(places)

    def _refusal(self, message: Outgoing) -> Refused | None:
        """Why the topic does not take a message, or None."""
        return topic_types.refusal(self._topic, message.extra or NO_EXTRA) or quotas.too_large(self._topic, message)

    def _kept(self, message: Outgoing) -> Place | None:
        """Stores a half or delayed message; returns its place, None for a visible message."""
        if message.extra is not None and message.extra.transaction:
            return transaction.begin(self._tx, self._topic, message)
        return delay.keep(self._tx, self._topic, message)

    def make_visible(self, messages: list[tuple[int, Outgoing]]) -> list[Place]:
        """Makes messages visible, those of one queue together; returns their places in the given order."""
        turn = -1
        queues: dict[int, list[int]] = {}
        for rank, (_, message) in enumerate(messages):
            extra = message.extra or NO_EXTRA
            if self._topic.type == "FIFO":
                queue = queue_of(extra.message_group, self._topic.queues)
            elif self._topic.type == "PRIORITY":
                queue = priority.queue_of(extra.priority, self._topic.queues)
            else:
                queue = turn = turn if turn >= 0 else rotate(self._tx, self._topic)
            queues.setdefault(queue, []).append(rank)
        places = [Place()] * len(messages)
        for queue, ranks in queues.items():
            first = enqueue(self._tx, self._topic, queue, tuple(messages[rank][1] for rank in ranks))
            for step, rank in enumerate(ranks):
                places[rank] = Place(queue, first + step)
        return places


def queue_of(message_group: str, queues: int) -> int:
    """The queue of a message group. It stays the same for the topic's life: a FIFO topic's queue count is fixed."""
    return int(U64.unpack(hash8(message_group))[0]) % queues
