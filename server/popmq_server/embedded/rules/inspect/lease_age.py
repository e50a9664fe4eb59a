"""The age of the oldest message that a group has leased: oldest_leased.py finds the chunk, this module reads it."""

from popmq_server.embedded.rules.topics.log import Log, located_in
from popmq_server.embedded.state import oldest_leased
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.checkpoint import members_of
from popmq_server.embedded.store.keys import U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.ids import GroupId, GroupTopic, TopicId
from popmq_server.values.message import RECORD

#: A metrics scrape reads each group in each topic, so it scans all leases only when the broker has few.
EXACT_LEASES = 200


def stored_ms(kv: Transaction, state: State, where: GroupTopic) -> int:
    """The store time of the oldest message that a group has leased in a topic; 0 = it has none.

    Exact while the broker has at most EXACT_LEASES leases. With more it is the store time of the chunk's first message:
    at most OPEN_MS_MAX earlier, in a chunk that several small commits share (topic.py).
    """
    position = oldest_leased.chunk(state, where)
    if position is not None and state.leases.count() <= EXACT_LEASES and (exact := _first(kv, state, where, position)):
        return exact
    raw = None if position is None else kv.get("log", U64.pack(position)) or _kept(kv, position)
    return 0 if raw is None else int(RECORD.unpack_from(raw)[3])


def _first(kv: Transaction, state: State, where: GroupTopic, position: int) -> int:
    """The store time of the first leased message of a chunk, by a scan of all leases."""
    log, times = Log(kv), list[int]()
    for ck in state.ck.all_of(lambda group_id, topic_id: where in _wheres(state, group_id, topic_id)):
        parts = (state.leases.get((ck.ck_id, sub)) for sub in range(ck.members + 1))
        bits = sum(part.undone & ~part.released for part in parts if part is not None)
        bits &= sum(1 << member for member in members_of(bits) if ck.chunk_of(member) == position)
        try:
            units = [unit[2:] for unit in located_in(kv, ck, bits)] if bits else []
        except LookupError:  # a damaged CheckPoint must not hide the numbers of its group
            continue
        times += [read[0] for unit in units if (read := log.fetch(ck.topic_id, *unit)) is not None]
    return min(times, default=0)


def _wheres(state: State, group_id: GroupId, topic_id: TopicId) -> tuple[GroupTopic, GroupTopic]:
    return (group_id, topic_id), (group_id, state.parent_of(topic_id))


def _kept(kv: Transaction, position: int) -> memoryview | None:
    """The first record left of a chunk whose live records were copied to `kept`: chunk position [8], record."""
    found = next(kv.scan("kept", b"", U64.pack(position)), None)
    return None if found is None else found[1][U64.size :]
