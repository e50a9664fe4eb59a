"""Retention by size: a topic with `bytes_max` makes room before it stores, or refuses to.

    Send ──▶ it fits ───────────────────────────────────────────────▶ stored
         ──▶ the oldest that may go are enough ──▶ they go ─────────▶ stored      the same transaction
         ──▶ they are not ──▶ STORAGE_FULL, naming the group that holds the most

    may go     what every group has moved past; by_age whatever is oldest, and the unread of it is counted as expired
    may not    a chunk that a lease or an entry of a retry topic points into: it is skipped, not stopped at

So a send never passes the limit. What the broker itself appends (dead letters, messages that became due) is stored all
the same, and the topic is trimmed in the next transaction; so is one whose limit was lowered. Each piece looks at
CHUNKS_MAX chunks. Bytes are those of the chunks (records.TopicStat), not of keys and indexes.
"""

from popmq_server.errors import Refused, invalid, storage_full
from popmq_server.model.message import RECORD, Outgoing
from popmq_server.model.records import Topic, TopicStat
from popmq_server.retention import chunks
from popmq_server.retention.chunks import Chunk
from popmq_server.state.tx import Tx
from popmq_server.topics import backlog
from popmq_server.topics.topic import flush

#: Chunks that one piece looks at.
CHUNKS_MAX = 200
#: Chunks of other topics that one piece steps over to find those of a LITE topic: some 5 ms.
OTHERS_MAX = 2000
#: A topic in which nothing could go is looked through again, beyond one piece, at most so often.
TRIM_AGAIN_MS = 1000


def make(tx: Tx, topic: Topic, messages: tuple[Outgoing, ...]) -> None:
    """Room for a request, before anything of it is stored; Refused when there is none, and then nothing has changed."""
    if not topic.bytes_max:
        return
    size = sum(len(message.data) + RECORD.size for message in messages)
    if size > topic.bytes_max:
        raise invalid(
            f"the request has {size} bytes, topic {topic.name!r} keeps at most {topic.bytes_max}",
            field="messages",
            action="send less in a request, or raise the topic's retention.max_bytes",
        )
    _free(tx, topic, size)
    tx.coming[topic.topic_id] = tx.coming.get(topic.topic_id, 0) + size


def _free(tx: Tx, topic: Topic, size: int) -> None:
    """Drops what is needed.

    What this commit has staged is written first, if it may go too: a burst into a topic that forgets is not refused.
    """
    over = _over(tx, topic, size)
    if over <= 0:
        return
    found = spare(tx, topic, over)
    if _sum(found) < over and tx.staged.get(topic.topic_id) and _forgets(tx, topic):
        flush(tx)
        over = _over(tx, topic, size)
        found = spare(tx, topic, over)
    if _sum(found) < over:
        raise _full(tx, topic, size)
    for owner, chunk in found:
        chunks.drop(tx, owner, chunk)


def _over(tx: Tx, topic: Topic, size: int) -> int:
    """By how much `size` bytes more would pass the limit."""
    stored = tx.state.topic_stat.get(topic.topic_id, TopicStat()).bytes
    return stored + tx.coming.get(topic.topic_id, 0) + size - topic.bytes_max


def _forgets(tx: Tx, topic: Topic) -> bool:
    """Whether what nobody has read may go."""
    return topic.by_age or not tx.state.topic_groups.get(topic.topic_id)


def _sum(found: list[tuple[Topic, Chunk]]) -> int:
    return sum(chunk.bytes for _, chunk in found)


def spare(tx: Tx, topic: Topic, wanted: int) -> list[tuple[Topic, Chunk]]:
    """Chunks that may go, the oldest first, until they have `wanted` bytes; fewer when there are no more.

    Looks at CHUNKS_MAX chunks; where all of these are not enough the next look goes on, remembered in memory. Of a LITE
    topic each lite topic has read its own as far as it has: one that has not does not end the search. Its chunks lie
    among those of other topics, which are stepped over once: the next search begins at the first that is its own.
    """
    state, topic_id = tx.state, topic.topic_id
    found, looked, others = list[tuple[Topic, Chunk]](), 0, 0
    start = state.looked.pop(topic_id, None)
    for owner, chunk in chunks.chunks_of(tx, topic, state.firsts.get(topic_id, 0) if start is None else start):
        if wanted <= 0:
            return found
        if looked == CHUNKS_MAX or others == OTHERS_MAX:
            state.looked[topic_id] = chunk.position
            return found
        if owner is None:
            others += 1
            continue
        if start is None:
            start = state.firsts[topic_id] = chunk.position
        looked += 1
        may_go = topic.by_age or chunks.passed(tx, owner, chunk)
        if not (may_go or topic.type == "LITE"):
            return found
        if may_go and not chunks.pinned(tx, chunk):
            found.append((owner, chunk))
            wanted -= chunk.bytes
    return found


def _full(tx: Tx, topic: Topic, size: int) -> Refused:
    """Why there is no room, and who could make it. When not all was looked at, housekeeping begins to trim at once."""
    state, topic_id = tx.state, topic.topic_id
    state.firsts.pop(topic_id, None)  # an aborted commit may have moved it too far
    if topic_id in state.looked and tx.now_ms - state.trimmed.get(topic_id, 0) >= TRIM_AGAIN_MS:
        state.looked.pop(topic_id)
        state.trims[topic_id] = max(size, state.trims.get(topic_id, 0))
    stored = state.topic_stat.get(topic_id, TopicStat()).bytes
    holder = backlog.greatest_backlog(state, topic_id)
    where = f"topic {topic.name!r} has {stored} bytes, its retention.max_bytes is {topic.bytes_max}"
    refused = storage_full(f"{where}; {holder}" if holder else where)
    refused.field = "topic"
    refused.action = "let the group catch up, delete what is not needed, or raise the topic's retention.max_bytes"
    return refused


def trim(tx: Tx) -> bool:
    """One piece for each topic that is to be trimmed; whether there is more to do now."""
    state = tx.state
    for topic_id, size in list(state.trims.items()):
        topic = state.topics.get(topic_id)
        missing = _over(tx, topic, size) if topic is not None and topic.bytes_max else 0
        if topic is not None and missing > 0:
            for owner, chunk in spare(tx, topic, missing):
                chunks.drop(tx, owner, chunk)
                missing -= chunk.bytes
        if missing <= 0 or topic_id not in state.looked:
            state.trims.pop(topic_id)
            state.trimmed[topic_id] = tx.now_ms
    return bool(state.trims)


def look_over(tx: Tx) -> None:
    """Once a minute: topics beyond their limit that nobody sends to are trimmed too."""
    for topic in tx.state.named_topics():
        if topic.bytes_max and _over(tx, topic, 0) > 0:
            tx.state.trims.setdefault(topic.topic_id, 0)
