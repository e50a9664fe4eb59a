"""Removes keys of deleted topics and groups, a bounded number per transaction, for purge.py and lite_removal.py."""

from popmq_server.state.tx import Tx
from popmq_server.storage.keys import TOPIC_AT, U64
from popmq_server.topics import lite_chunks
from popmq_server.topics.log import Log

#: Databases whose keys start with the topic id.
OF_TOPIC = ("cq", "idx", "widx", "lidx", "bare", "mark", "queue", "hist", "quar", "uid", "gone", "tstat")


def drop_range(tx: Tx, name: str, prefix: bytes, left: int, parent_id: int = 0) -> int:
    """Removes up to `left` keys; returns how many more this piece may remove. `parent_id`: that of a lite topic."""
    if not left:
        return 0
    found: list[tuple[bytes, int]] = []
    for key, value in tx.kv.scan(name, prefix):
        if len(found) == left:
            break
        found.append((key, U64.unpack_from(value)[0] if name in ("rq", "fwait") else 0))
    log = Log(tx.kv)
    for key, position in found:
        if name in ("rq", "fwait") and (chunk := log.chunk_of(position)) >= 0:
            tx.pin(chunk, -1)
        if name == "idx":
            position = TOPIC_AT.unpack(key)[1]
            _drop_chunk(tx, position)
            lite_chunks.remove(tx, parent_id, position)
        tx.kv.delete(name, key)
    return left - len(found)


def _drop_chunk(tx: Tx, position: int) -> None:
    """Removes a chunk of a deleted topic, with its pins and its records in `kept`."""
    chunk = tx.kv.get("log", U64.pack(position))
    tx.kv.delete("log", U64.pack(position))
    tx.kv.delete("pin", U64.pack(position))
    if chunk is None:
        kept = [
            key for key, value in tx.kv.scan("kept", b"", U64.pack(position)) if U64.unpack_from(value)[0] == position
        ]
        for key in kept:
            tx.kv.delete("kept", key)
