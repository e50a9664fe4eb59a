"""GetResults, one piece of it: the last records of some message ids.

    ids ─▶ hashes ─▶ places.find ─▶ records of the log ─▶ the id itself, not forgotten, not too old ─▶ rows

A piece looks at so many ids that it reads some LOOKS_MAX parts of the directory. loop/parked_results.py runs the
others, and waits for what is not there.
"""

from popmq_server.embedded.operations import ResultsPiece, SomeResults
from popmq_server.embedded.rules.results import places, stored
from popmq_server.embedded.rules.topics import registry
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state.tx import Tx
from popmq_server.values.message import results_topic
from popmq_server.values.outgoing import hash8
from popmq_server.values.records import Group

#: Parts of the directory that one piece reads: some 8 ms.
LOOKS_MAX = 4000


def find(tx: Tx, command: ResultsPiece) -> SomeResults:
    """Runs one piece."""
    group = stored.keeping(tx, command.group)
    topic = registry.topic(tx, results_topic(group.name))
    if topic is None:
        return SomeResults([], len(command.message_ids), False)
    steps = sum(1 for _ in places.generations(tx.kv, topic.topic_id))
    ids = {hash8(each): each for each in command.message_ids[: max(1, LOOKS_MAX // max(1, steps))]}
    positions = places.find(tx.kv, topic.topic_id, frozenset(ids))
    rows, room = list[tuple[bytes, int, str]](), command.bytes_max
    log = Log(tx.kv)
    for name, position in positions.items():
        read = log.fetch_at(topic.topic_id, position)
        if read is None or not _counts(tx, group, read, ids[name]):
            continue
        room -= len(read[1])
        if rows and room < 0:
            return SomeResults(rows, len(ids), True)
        rows.append((read[1], read[0], ids[name]))
    return SomeResults(rows, len(ids), False)


def _counts(tx: Tx, group: Group, read: tuple[int, bytes], message_id: str) -> bool:
    """Whether a record is of this id, not forgotten, and not too old."""
    stored_ms, data = read
    head = stored.id_field(message_id)
    if not data.startswith(head) or data[len(head) :] == stored.FORGOTTEN:
        return False
    return tx.now_ms - stored_ms < group.results_keep_ms
