"""`popmq check` of the places of results (rules/results/places.py).

a generation   ends with a row that says how far it reaches and how many names it has; each name is in its part, the
               newest of one last, and of a chunk of the generation
a name         of a chunk that a generation reaches is in it
"""

from collections.abc import Iterator
from operator import itemgetter

from popmq_server.embedded.rules.results.places import END, KEY, REACH, part_of
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD, IDX_RANGE
from popmq_server.embedded.rules.topics.index import NAME, WIDE_NAME
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.keys import TOPIC_AT, U32
from popmq_server.embedded.store.lmdb import Transaction


def check(kv: Transaction, state: State) -> Iterator[str]:
    """Every broken invariant; leaves out topics that are being removed."""
    at, entries = b"", set[tuple[bytes, int]]()
    for key, value in kv.scan("res"):
        topic_id, begin, part = KEY.unpack(key)
        where = f"the places of results of topic {topic_id} from {begin} on"
        if topic_id in state.purges:
            continue
        if topic_id not in state.topics:
            yield f"{where}: there is no such topic"
        if key[: TOPIC_AT.size] != at:
            if entries:
                yield f"{where}: the generation before them has no end"
            at, entries = key[: TOPIC_AT.size], set()
        if part == END:
            reach, names = REACH.unpack(value)
            yield from _check_generation(kv, where, topic_id, begin, reach, names, entries)
            entries = set()
            continue
        found = list(WIDE_NAME.iter_unpack(value))
        if any(part_of(name) != part for name, _ in found):
            yield f"{where}: part {part} has a name of another part"
        if dict(found) != dict(sorted(found, key=itemgetter(1))):
            yield f"{where}: part {part} has a name whose last entry is not its newest"
        entries.update(found)
    if entries:
        yield "the last places of results have no end"


def _check_generation(
    kv: Transaction, where: str, topic_id: int, begin: int, reach: int, names: int, entries: set[tuple[bytes, int]]
) -> Iterator[str]:
    if len(entries) != names:
        yield f"{where}: {len(entries)} names, counted {names}"
    if any(not begin <= place < reach for _, place in entries):
        yield f"{where}: a name lies outside of it"
    for key, block in kv.scan("idx", U32.pack(topic_id), TOPIC_AT.pack(topic_id, begin)):
        position = TOPIC_AT.unpack(key)[1]
        if position >= reach:
            break
        raw = block[IDX_HEAD.size + IDX_HEAD.unpack_from(block)[2] * IDX_RANGE.size :]
        if not entries.issuperset([(name, position + place) for name, place in NAME.iter_unpack(raw)]):
            yield f"{where}: a name of the chunk at {position} is missing"
