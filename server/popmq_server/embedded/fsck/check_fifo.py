"""`popmq check` for FIFO topics: waiting entries, their message groups, offsets and counts."""

from collections import Counter
from collections.abc import Iterator

from popmq_server.embedded.fsck import check_dead_letters
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.keys import FWAIT_KEY, FWAIT_VALUE, STAT_KEY, U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.fields import LITE_TOPIC, MESSAGE_GROUP, text
from popmq_server.values.ids import GroupTopic
from popmq_server.values.outgoing import hash8


def count_waiting(
    kv: Transaction,
    state: State,
    where: GroupTopic,
    name: str,
    held: Counter[tuple[int, int]],
    released: dict[tuple[int, int], int],
) -> Iterator[str]:
    """Adds waiting entries to `held`; a tied entry must have been released by its CheckPoint."""
    log, count = Log(kv), 0
    for key, value in kv.scan("fwait", STAT_KEY.pack(*where)):
        _, _, message_group, offset = FWAIT_KEY.unpack(key)
        position, size, _, queue, _, ck_id, member, _ = FWAIT_VALUE.unpack_from(value)
        count += 1
        place = check_dead_letters.place_of(kv, where[1], position, queue, offset)
        held[place] += 1
        if ck_id in state.ck and not released.pop((ck_id, member), 0) and not state.torn(ck_id, member):
            yield f"{name}: a waiting entry is tied to member {member} of CheckPoint {ck_id}, which did not release it"
        passed = offset < state.poff.get((*where, queue), 0)
        if place[0] != check_dead_letters.REDRIVEN and not passed and where not in state.sweeps:
            yield f"{name}: queue {queue} offset {offset} waits, but is not passed"
        read = log.fetch(where[1], position, size)
        if read is not None and hash8(text(read[1], MESSAGE_GROUP) or text(read[1], LITE_TOPIC)) != message_group:
            yield f"{name}: queue {queue} offset {offset} waits under another message group than its own"
    if count != state.stat[where].waiting:
        yield f"{name}: {count} messages wait, counted {state.stat[where].waiting}"


def pinned(kv: Transaction) -> Iterator[tuple[str, int, int, int]]:
    """("waiting", group id, topic id, position) of each waiting message, which holds its chunk."""
    for key, value in kv.scan("fwait"):
        group_id, topic_id, _, _ = FWAIT_KEY.unpack(key)
        yield "waiting", group_id, topic_id, U64.unpack_from(value)[0]
