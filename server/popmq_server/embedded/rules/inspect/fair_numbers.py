"""Numbers of fair keys: how many wait, the busiest ones, and why a message waits for its key.

They are those of what has been read ahead (delivery/fair/index.py): complete while fewer messages wait than it holds.
"""

import heapq
from typing import Any

from popmq_server.contract.commands.numbers import KeyNumbers
from popmq_server.embedded.rules.delivery.fair import index as indexes
from popmq_server.embedded.rules.delivery.fair import keys, waiting
from popmq_server.embedded.rules.delivery.fair.index import FairIndex
from popmq_server.embedded.rules.delivery.fair.limits import AFTER_A_LEASE, NOW, Limits
from popmq_server.embedded.rules.topics.log import Log, entries_at
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import RQ_KEY, RQ_VALUE
from popmq_server.values.ids import GroupTopic
from popmq_server.values.records import Group, Topic

#: Keys that are listed, and slots among which they are looked for (5 ms).
BUSIEST, LOOKS_MAX = 5, 50_000
#: Characters of a key that are shown.
SHOWN_MAX = 128


def of(tx: Tx, group: Group, topic: Topic) -> dict[str, Any]:
    """The numbers of the fair keys of a group in a topic, as fields of GroupNumbers; none without fair keys."""
    if group.fair_keys is None or not group.fair_keys.on or topic.type in ("FIFO", "LITE") or topic.is_dead_letter:
        return {}
    where = (group.group_id, topic.topic_id)
    index = indexes.of_group(tx.state, where)
    if index is None:
        return {"keys_waiting": 0}
    found = index.keys
    slots = (slot for slot in range(1, min(len(found.number), LOOKS_MAX)) if found.kind[slot] == waiting.KEY)
    busiest = heapq.nlargest(BUSIEST, slots, key=found.count.__getitem__)
    return {
        "keys_waiting": found.keys - found.labels,
        "busiest_keys": tuple(
            KeyNumbers(
                _shown(_key_of(tx, where, topic, index, slot)),
                found.count[slot],
                index.limits.leased(tx.state, found.number[slot]),
            )
            for slot in busiest
        ),
    }


def _key_of(tx: Tx, where: GroupTopic, topic: Topic, index: FairIndex, slot: int) -> bytes:
    """The key of a slot, from its first message; empty if that cannot be read."""
    found, log = index.keys, Log(tx.kv)
    if node := found.first[slot]:
        queue, offset = waiting.queue_of(found.place[node]), waiting.offset_of(found.place[node])
        units = entries_at(tx.kv, topic.topic_id, queue, [index.base[queue] + offset])
        place = units[0][1:] if units else None
    else:
        rseq = index.retries_base + waiting.offset_of(found.place[found.retry_first[slot]])
        raw = tx.kv.get("rq", RQ_KEY.pack(*where, rseq))
        place = None if raw is None else RQ_VALUE.unpack_from(raw)[:2]
    try:
        return b"" if place is None else index.read_keys([log.unverified(*place)])[0]
    except (IndexError, ValueError):
        return b""


def _shown(key: bytes) -> str:
    return key.decode(errors="replace")[:SHOWN_MAX]


def standing(tx: Tx, group: Group, topic: Topic, data: bytes | None) -> str:
    """Why a message that is not leased waits for its fair key; empty: it does not."""
    fair = group.fair_keys
    if fair is None or not fair.on or data is None or topic.type in ("FIFO", "LITE") or topic.is_dead_letter:
        return ""
    where = (group.group_id, topic.topic_id)
    index, key = indexes.of_group(tx.state, where), keys.reader_of(fair)([data])[0]
    limits, number = Limits(fair, where) if index is None else index.limits, keys.number_of(key)
    leases_max, rate = limits.of(number)
    verdict = limits.may_go(tx.state, number, 0, tx.now_ms)
    if verdict == AFTER_A_LEASE:
        return f"waits: key {_shown(key)} has its {leases_max} in flight"
    if verdict != NOW:
        return f"waits: key {_shown(key)} has had its {rate} messages of this second"
    slots = [] if index is None else index.keys.slots(number)
    count = 0 if index is None else sum(index.keys.count[slot] for slot in slots)
    return f"waits for the turn of key {_shown(key)}, which has {count} messages waiting" if count else ""
