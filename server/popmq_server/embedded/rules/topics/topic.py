"""The queues of a topic: appends messages, and is the one module that writes the ends of queues.

enqueue → stages messages: assigns offsets in a queue, keeps the bytes in `staged`
flush   → writes the staged messages of each topic to the log (chunk.py): three puts for a commit to one queue, for
          any number of messages

staged:  T ─┬─ request A: queue 3, offsets 10–13          chunk of T:  A0 A1 A2 A3 B0 B1 C0    (commit order)
            ├─ request B: queue 5, offsets 7–8            cq T 3 10 → A0 A1 A2 A3, C0
            └─ request C: queue 3, offset 14              cq T 5 7  → B0 B1
"""

from collections.abc import Iterable

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.topics import chunk, readers
from popmq_server.embedded.state import topic_counts
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import invalid
from popmq_server.values.ids import TopicId, TopicQueue
from popmq_server.values.message import RECORD_HEAD_BYTES
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import Topic, TopicStat


def rotate(tx: Tx, topic: Topic, requests: int = 1) -> int:
    """The next queue in rotation, for the first of some requests; each further request takes the queue after it.

    All messages of a request go to one queue, so they are in one block.
    """
    turn = tx.state.send_turns.get(topic.topic_id, 0)
    tx.state.send_turns[topic.topic_id] = turn + requests
    tx.state.undo.note(tx.state.send_turns.__setitem__, topic.topic_id, turn)
    return turn % topic.queues


def enqueue(tx: Tx, topic: Topic, queue: int, messages: tuple[Outgoing, ...]) -> int:
    """Stages messages for a queue; returns the offset of the first.

    It assigns offsets before the bytes are written; the same commit makes both durable, or neither. Raises Refused if
    the store has no room for them.
    """
    if not tx.room.plenty:
        chunk.demand(tx, messages)
    state, where = tx.state, (topic.topic_id, queue)
    if not 0 <= queue < topic.queues:
        broken("message_in_a_queue", topic=topic.topic_id, queue=queue, queues=topic.queues)
    first = state.queue_max.get(where, 0)
    state.queue_max[where] = first + len(messages)
    total = state.total.get(topic.topic_id, 0)
    if total < first:
        broken("ends_are_a_sum", topic=topic.topic_id, queue=queue, end=first, total=total)
    state.total[topic.topic_id] = total + len(messages)
    request = chunk.staged(queue, first, messages)
    if (requests := state.staged.get(topic.topic_id)) is None:
        state.staged[topic.topic_id] = [request]
    else:
        requests.append(request)
    if topic.parent_id:
        topic_counts.add_lites(tx, topic.parent_id, 0, len(messages))
        for group_id in state.topic_groups.get(topic.topic_id, ()):
            readers.count_unread(tx, (group_id, topic.topic_id), len(messages))
        tx.wake(None, topic.topic_id)
    else:
        tx.came(topic, queue)
    return first


def flush(tx: Tx) -> None:
    """Writes all staged messages; a topic that then exceeds its size limit is trimmed later (retention/by_size.py)."""
    state = tx.state
    for topic_id, requests in state.staged.take().items():
        for piece, size in chunk.pieces(requests):
            chunk.write(tx, topic_id, piece, size)
        topic = state.topics.get(topic_id)
        if topic is not None and 0 < topic.bytes_max < state.topic_stat[topic_id].bytes:
            mark_full(tx, topic_id)
    state.coming.take()


def written(tx: Tx, topic_id: TopicId, queue: int) -> int:
    """The next offset of a queue, without staged messages."""
    firsts = (request.first for request in tx.state.staged.get(topic_id, ()) if request.queue == queue)
    return min(firsts, default=tx.state.queue_max.get((topic_id, queue), 0))


# ── The ends of queues ───────────────────────────────────────────────────────────────────────────────────────────────


def continue_queues(tx: Tx, old: Topic, new: Topic) -> None:
    """The queues of a topic that began again begin where those of the old one ended."""
    state = tx.state
    for queue in range(new.queues):
        end = state.queue_max.get((old.topic_id, queue), 0)
        state.queue_max[(new.topic_id, queue)] = state.queue_min[(new.topic_id, queue)] = end
    state.total[new.topic_id] = state.total.get(old.topic_id, 0)


def end_queues(tx: Tx, topic: Topic) -> None:
    """Gives each queue of a topic that is deleted an end, from which `State.forget_topic` knows the queues."""
    for where in ((topic.topic_id, queue) for queue in range(topic.queues)):
        if where not in tx.state.queue_max:
            tx.state.queue_max[where] = 0


def raise_begin(tx: Tx, where: TopicQueue, least: int) -> int:
    """Moves the first readable offset of a queue up to an offset; returns the one before.

    Writes it also if it is unchanged: this writes the end of the queue as well.
    """
    before, end = tx.state.queue_min.get(where, 0), tx.state.queue_max.get(where, 0)
    if max(least, before) > end:
        broken("queue_begins_before_its_end", where=where, begin=max(least, before), end=end)
    tx.state.queue_min[where] = max(least, before)
    return before


# ── Topics with a limit of bytes (retention/by_size.py) ─────────────────────────────────────────────────────────────


class NeedsRoom(Exception):
    """A request does not fit in its topic, and nothing of it is stored: it runs again when retention has made room."""

    def __init__(self, topic: Topic, size: int) -> None:
        super().__init__(f"{size} bytes do not fit in topic {topic.name!r}")
        self.topic = topic
        self.size = size


def demand(tx: Tx, topic: Topic, messages: Iterable[Outgoing]) -> None:
    """Raises NeedsRoom if the messages do not fit, Refused if they never will.

    Afterwards call `expect` with the messages that were stored: a refused entry takes no room from the next request.
    """
    if not topic.bytes_max:
        return
    size = _size(messages)
    if size > topic.bytes_max:
        raise invalid(
            f"the request has {size} bytes, topic {topic.name!r} keeps at most {topic.bytes_max}",
            field="messages",
            action="send less in a request, or raise the topic's retention.max_bytes",
        )
    if over(tx, topic, size) > 0:
        raise NeedsRoom(topic, size)


def _size(messages: Iterable[Outgoing]) -> int:
    return sum(len(message.data) + RECORD_HEAD_BYTES for message in messages)


def over(tx: Tx, topic: Topic, size: int) -> int:
    """By how many bytes `size` more would exceed the topic's limit."""
    stored = tx.state.topic_stat.get(topic.topic_id, TopicStat()).bytes
    return stored + tx.state.coming.get(topic.topic_id, 0) + size - topic.bytes_max


def expect(tx: Tx, topic: Topic, messages: Iterable[Outgoing]) -> None:
    """Counts stored messages until the commit writes them; from then on the size of the topic includes them."""
    if topic.bytes_max:
        tx.state.coming[topic.topic_id] = tx.state.coming.get(topic.topic_id, 0) + _size(messages)


def mark_full(tx: Tx, topic_id: int, size: int = 0) -> None:
    """Marks a topic that has to be trimmed. `size`: bytes that a request still needs."""
    tx.state.trims[topic_id] = max(size, tx.state.trims.get(topic_id, 0))


def unmark_full(tx: Tx, topic_id: int) -> None:
    """Notes that a topic is trimmed, or that it cannot be."""
    tx.state.trims.pop(topic_id)
