"""Trace: finds everything stored under a message id, in pieces between other commands.

    stage 0   index blocks of each topic, the newest topic first   ─▶ messages in the log, and dead letters
    stage 1   tsched                                               ─▶ delayed messages
    stage 2   hmsg                                                 ─▶ half messages

A stage continues at a key. That of stage 0 is the topic and the position below which it has not searched yet.
"""

import itertools

from popmq_server.embedded.operations import Spotted, Trace, Traced
from popmq_server.embedded.rules.topics import index, readers, registry
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import TOPIC_AT, U32, U64
from popmq_server.errors import group_not_found, topic_not_found
from popmq_server.values.message import GIVE_UP_TOPIC, dead_letter_topic
from popmq_server.values.outgoing import hash8, packed_id_hash
from popmq_server.values.records import TopicStat

#: Index blocks that one piece reads, and the cost of a topic besides its blocks.
STEPS, TOPIC_STEPS = 5000, 2
#: Delayed or half messages that one piece reads, and the number of delayed ones read at once.
ROWS_MAX, ROWS_AT_ONCE = 20_000, 1000
LOG, DELAYED, HALF = 0, 1, 2


def trace(tx: Tx, command: Trace) -> Traced:
    """Runs one piece."""
    if command.topic and registry.topic(tx, command.topic) is None:
        raise topic_not_found(command.topic)
    if command.group and readers.group(tx, command.group) is None:
        raise group_not_found(command.group)
    stage, key = command.at
    wanted = hash8(command.message_id)
    if stage == LOG:
        found, left = _in_log(tx, _topics(tx, command), wanted, key)
    else:
        found, left = _in_rows(tx, stage, command.topic, wanted, key)
    if left is not None:
        return Traced(found, (stage, left))
    return Traced(found, None if stage == HALF else (stage + 1, b""))


def _topics(tx: Tx, command: Trace) -> list[int]:
    """The topics to search: the named one, or all but those of results, and the dead letter topics of the groups that
    read it.
    """
    state = tx.state
    topic = registry.topic(tx, command.topic) if command.topic else None
    groups = state.topic_groups.get(topic.topic_id, ()) if topic else list(state.groups)
    names = [state.groups[group_id].name for group_id in groups if group_id in state.groups]
    dead_letters = {dead_letter_topic(name) for name in names if command.group in ("", name)} | {GIVE_UP_TOPIC}
    if topic is not None:
        found = [each.topic_id for each in (topic, *registry.topics(tx, dead_letters))]
    else:
        found = [each.topic_id for each in state.topics.values() if not each.is_own or each.name in dead_letters]
    return sorted(set(found), reverse=True)


def _in_log(tx: Tx, topics: list[int], wanted: bytes, key: bytes) -> tuple[list[Spotted], bytes | None]:
    """Stage 0: the hits, and the key to continue at; None when all topics were searched."""
    found, steps = list[Spotted](), STEPS
    begun, at = TOPIC_AT.unpack(key) if key else (1 << 32, 0)
    for topic_id in topics:
        if topic_id > begun or (topic_id, 0) == (begun, at):
            continue
        below = at if topic_id == begun else index.end(tx.kv, topic_id)
        hits, below, steps = index.search(tx.kv, topic_id, frozenset({wanted}), below, steps)
        found += [Spotted(LOG, topic_id, U64.pack(hit.position)) for hit in hits]
        steps -= TOPIC_STEPS
        if steps <= 0:
            return found, TOPIC_AT.pack(topic_id, below)
    return found, None


def _in_rows(tx: Tx, stage: int, topic_name: str, wanted: bytes, key: bytes) -> tuple[list[Spotted], bytes | None]:
    """Stages 1 and 2: scans the small rows of delayed or half messages."""
    topic = registry.topic(tx, topic_name) if topic_name else None
    stat = tx.state.topic_stat.get(topic.topic_id, TopicStat()) if topic else None
    if not (stat[stage] if stat is not None else tx.state.unseen.get(TopicStat._fields[stage], 0)):
        return [], None
    prefix = U32.pack(topic.topic_id) if topic else b""
    keys, left = (_delayed if stage == DELAYED else _half)(tx, wanted, prefix, key or prefix)
    topics = [(U32.unpack_from(found)[0], found) for found in keys if found.startswith(prefix)]
    return [Spotted(stage, topic_id, found) for topic_id, found in topics if topic_id in tx.state.topics], left


def _delayed(tx: Tx, wanted: bytes, prefix: bytes, start: bytes) -> tuple[list[bytes], bytes | None]:
    """Keys of delayed messages that have the hash. Values are hashes: it joins many and searches them as one text."""
    cursor = tx.kv.cursor("tsched")
    found: list[bytes] = []
    more, looked = cursor.set_range(start), 0
    while more and bytes(cursor.key()).startswith(prefix):
        first = bytes(cursor.key())
        if looked >= ROWS_MAX:
            return found, first
        raw = b"".join(itertools.islice(cursor.iternext(keys=False, values=True), ROWS_AT_ONCE))
        looked += ROWS_AT_ONCE
        more = len(raw) == len(wanted) * ROWS_AT_ONCE and cursor.next()
        if wanted in raw:
            rows = itertools.islice(tx.kv.scan("tsched", b"", first), ROWS_AT_ONCE)
            found += [key for key, value in rows if value == wanted]
    return found, None


def _half(tx: Tx, wanted: bytes, prefix: bytes, start: bytes) -> tuple[list[bytes], bytes | None]:
    """Keys of half messages that have the hash."""
    found: list[bytes] = []
    for looked, (key, value) in enumerate(tx.kv.scan("hmsg", prefix, start)):
        if looked == ROWS_MAX:
            return found, key
        if packed_id_hash(value[U32.size :]) == wanted:
            found.append(key)
    return found, None
