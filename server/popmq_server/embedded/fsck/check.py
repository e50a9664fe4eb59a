"""`popmq check`: walks a stopped store and reports every broken invariant, one sentence each.

    for each queue       blocks follow each other; each entry points at a whole record of its topic
    for each group       every message it has passed is in exactly one of: leased, backoff, retry, done, dead letter,
                         dropped, quarantined; a released member is in the retry topic and in one live CheckPoint
    for each lease       it has its CheckPoint, its parts do not overlap, an owner's has its owner and its token
    counters             retry entries, pins and passed messages equal a scan
    checksums            each row matches its own, if the store has them (check_rows.py)
    not visible yet      check_pending.py
    lite topics          check_lite.py
    schedules            check_pending.py
    places of results    check_results.py

The pages of the file come first (datafile/walk.py): with a damaged one the rest is not read. It writes nothing
(repair.py does), and loads the tables as a starting broker does (state.py).
"""

import argparse
import itertools
import pathlib
import sys
from collections import Counter
from collections.abc import Iterator

from popmq_server.embedded.fsck import (
    at_start,
    check_dead_letters,
    check_lite,
    check_log,
    check_pending,
    check_results,
    check_rows,
)
from popmq_server.embedded.invariants.broken import BrokenInvariant
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD
from popmq_server.embedded.rules.topics.log import Log, located
from popmq_server.embedded.state import loading
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.checkpoint import CheckPoint
from popmq_server.embedded.store.datafile import last_commit
from popmq_server.embedded.store.folder import data_file
from popmq_server.embedded.store.keys import (
    DUE_KEY,
    FWAIT_KEY,
    FWAIT_VALUE,
    NEVER,
    RQ_KEY,
    RQ_VALUE,
    STAT_KEY,
    SUB_OWNER,
    TAKEN_BLOCK,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.row_formats import RowReader
from popmq_server.embedded.store.store import ReadOnlyStore, reading
from popmq_server.embedded.store.table import Item
from popmq_server.errors import StartError
from popmq_server.values.fields import LITE_TOPIC, MESSAGE_GROUP, text
from popmq_server.values.ids import GroupId, GroupQueue, GroupTopic, TopicId
from popmq_server.values.outgoing import hash8

TOPIC_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE")
PERMISSIONS = ("READ_WRITE", "READ_ONLY", "WRITE_ONLY", "NO_ACCESS")
#: Map size for a store that is only read, which needs no room to grow; LMDB maps the whole file when it is larger.
CHECK_MAP_BYTES = 1 << 30


def check_folder(folder: pathlib.Path) -> list[str]:
    """Every broken invariant of the data folder of a stopped broker; writes nothing. Raises StartError: no store."""
    data = data_file(folder)
    store = ReadOnlyStore(folder)
    try:
        lost = [told] if (told := last_commit.missing(folder, data)) else []
        if broken := list(store.page_faults()):  # reading on would follow damaged pages
            return lost + broken
        with reading(store) as kv:
            return lost + list(check(kv))
    finally:
        store.close()


def check(kv: Transaction) -> Iterator[str]:
    """Every broken invariant, as sentences.

    The state is loaded as at a start. A row that stops the start is one finding; the rest cannot be checked then.
    """
    rows = check_rows.check(kv)
    yield from rows.sentences
    if not rows.readable:
        return
    lost = list(_check_lost(kv))
    yield from lost
    if lost:  # nor could a broker start on it
        return
    state = State()
    try:
        loading.load(state, kv)
    except StartError as unreadable:
        yield str(unreadable)
        return
    state.read_through(kv)
    yield from (f"a start is refused: {finding.broken}" for finding in at_start.findings(kv, state))
    try:
        yield from _check_loaded(kv, state)
    except (
        *RowReader.ERRORS,
        BrokenInvariant,
    ) as lost:  # a leased message is not in the store: the rest cannot be counted
        yield f"the check ends here: {lost}"
    finally:
        state.read_through(None)


def _check_loaded(kv: Transaction, state: State) -> Iterator[str]:
    """Checks the invariants that need the loaded state."""
    yield from _check_names(state)
    yield from _check_settings(state)
    yield from check_lite.check(kv, state)
    check_lite.leave_out_orphans(state)
    yield from check_log.chunks(kv, state)
    yield from check_log.queues(kv, state)
    yield from _check_leases(state)
    yield from _check_owners(state)
    yield from _check_groups(kv, state)
    yield from _check_unsubscribed(kv, state)
    yield from _check_pins(kv, state)
    yield from _check_bytes(kv, state)
    yield from check_pending.check_deadlines(kv, state)
    yield from check_pending.check_pending(kv, state)
    yield from check_pending.check_stages(kv, state)
    yield from check_pending.check_schedules(kv, state)
    yield from check_dead_letters.check(kv, state)
    yield from check_results.check(kv, state)
    yield from check_rows.check_history(kv)


def _check_lost(kv: Transaction) -> Iterator[str]:
    """Each lease in the revive topic has its CheckPoint."""
    for key in kv.scan_keys("due"):
        _, ck_id, sub = DUE_KEY.unpack(key)
        if sub != SUB_OWNER and kv.get("ck", U64.pack(ck_id)) is None:
            yield f"a lease in the revive topic names CheckPoint {ck_id}, which is gone"


def _check_names(state: State) -> Iterator[str]:
    """Names and ids of topics and groups lead to each other."""
    records: dict[tuple[str, int], str] = {("g", group_id): group.name for group_id, group in state.groups.items()}
    records |= {("t", topic_id): topic.name for topic_id, topic in state.topics.items() if not topic.parent_id}
    named = {(kind, found): name for (kind, name), found in state.ids.items()}
    for kind, found in records.keys() | named.keys():
        if found not in state.purges and records.get((kind, found)) != named.get((kind, found)):
            what, name = "topic" if kind == "t" else "group", named.get((kind, found))
            yield f"the {what} {found} is named {records.get((kind, found))!r}, and found by the name {name!r}"


def _check_settings(state: State) -> Iterator[str]:
    """Settings with a fixed set of values have one of these values."""
    for topic in state.topics.values():
        if topic.type not in TOPIC_TYPES or topic.permission not in PERMISSIONS or topic.queues < 1:
            yield f"topic {topic.name} has invalid settings: {topic}"
    for group in state.groups.values():
        if group.start_from not in ("EARLIEST", "LATEST", "TIMESTAMP") or not group.delays_ms:
            yield f"group {group.name} has invalid settings: {group}"
    for where, found in state.subscriptions.items():
        if found.mode not in ("POP", "PULL") or found.filter_kind not in ("", "tag", "sql92"):
            yield f"group {where[0]} has settings in topic {where[1]} that no subscription has: {found}"


def _check_leases(state: State) -> Iterator[str]:
    """Parts of one CheckPoint hold members of its own, each at most once; no empty lease stays."""
    parts = _parts(state)
    for ck_id, ck in state.ck.items():
        if ck_id >= state.counters[""].ck_id:
            yield f"CheckPoint {ck_id} has a number that was never assigned"
        if ck_id not in parts:
            yield f"CheckPoint {ck_id} has no lease"
        seen = 0
        for sub in parts.get(ck_id, ()):
            lease = state.leases[(ck_id, sub)]
            if lease.undone & seen or lease.undone & ~ck.all_bits:
                yield f"CheckPoint {ck_id}: part {sub} holds members that are not its own"
            if (lease.due_ms >= NEVER) != bool(ck.owner_id):
                yield f"CheckPoint {ck_id}: only an owner's lease has no deadline of its own"
            if not lease.undone and not ck.owner_id:
                yield f"CheckPoint {ck_id}: part {sub} holds nothing"
            seen |= lease.undone


def _parts(state: State) -> dict[int, list[int]]:
    """The parts of each CheckPoint's lease, by their numbers: objects of a million leases would be a gigabyte."""
    parts: dict[int, list[int]] = {}
    for ck_id, sub in state.leases:
        if sub != SUB_OWNER:
            parts.setdefault(ck_id, []).append(sub)
    return parts


def _check_owners(state: State) -> Iterator[str]:
    """Owners, tokens and CheckPoints name each other, except those that are being removed."""
    tokens = Counter(token.ck_id for token in state.tokens.values() if token.ck_id)
    for owner in state.owners.values():
        if (owner.owner_id, SUB_OWNER) not in state.leases:
            yield f"owner {owner.name!r} has no key in the revive topic"
    for (group_id, topic_id, _), token in state.tokens.items():
        if group_id in state.purges or topic_id in state.purges:
            continue
        if token.owner_id not in state.owner_keys:
            yield f"a token of epoch {token.epoch} belongs to no owner"
        if token.ck_id and token.ck_id not in state.ck:
            yield f"a token of epoch {token.epoch} names CheckPoint {token.ck_id}, which is gone"
    for ck in state.ck.values():
        deleted = ck.group_id in state.purges or ck.topic_id in state.purges
        if ck.owner_id and tokens[ck.ck_id] != 1 and not deleted:
            yield f"CheckPoint {ck.ck_id} of owner {ck.owner_id} has {tokens[ck.ck_id]} tokens"


def _check_groups(kv: Transaction, state: State) -> Iterator[str]:
    """The invariant of the model: every message a group has passed is in exactly one place, and they add up."""
    parts, leased = _parts(state), dict[tuple[int, int], list[tuple[int, int]]]()
    for ck_id, ck in state.ck.items():
        leased.setdefault((ck.group_id, ck.topic_id), []).extend((ck_id, sub) for sub in parts.get(ck_id, ()))
    for (group_id, topic_id), stat in state.stat.items():
        group, topic = state.groups.get(group_id), state.topics.get(topic_id)
        if group is None or topic is None or (topic.type == "LITE" and not topic.parent_id):
            continue
        where = f"group {group.name} in {topic.name}" + (f" {topic.lite_topic}" if topic.parent_id else "")
        passed = 0
        for queue in range(topic.queues):
            offset = state.poff.get((group_id, topic_id, queue), 0)
            passed += offset + readers.taken_ahead(state, (group_id, topic_id, queue))
            yield from _check_taken(state, (group_id, topic_id, queue), offset, where)
            if offset > state.queue_max[(topic_id, queue)]:
                yield f"{where}: queue {queue} is at {offset}, beyond its end {state.queue_max[(topic_id, queue)]}"
        held: Counter[tuple[int, int]] = Counter()
        released: dict[tuple[int, int], int] = {}
        yield from _count_leased(kv, state, leased.get((group_id, topic_id), []), where, held, released)
        yield from _count_waiting(kv, state, (group_id, topic_id), where, held, released)
        yield from _count_retries(kv, state, group_id, topic_id, where, held, released)
        for place, times in held.items():
            if times != 1 and one_place(state, (group_id, topic_id)):
                yield f"{where}: queue {place[0]} offset {place[1]} is in {times} places at once"
        done = stat.acked + stat.dead + stat.dropped + stat.quarantined + stat.filtered + stat.expired
        if passed - stat.start != done + held.total():
            yield f"{where}: passed {passed - stat.start} messages, finished {done}, holds {held.total()}"


def _check_taken(state: State, queue: GroupQueue, offset: int, where: str) -> Iterator[str]:
    """What was passed beyond a position begins after the next message, and ends with the queue."""
    end = state.queue_max[queue[1:]]
    for block, bits in state.taken.get(queue, {}).items():
        first = block * TAKEN_BLOCK
        if not bits or first + bits.bit_length() > end or bits & (1 << max(0, offset + 1 - first)) - 1:
            yield f"{where}: queue {queue[2]} is at {offset}, and block {block} of what it passed beyond that is wrong"


def one_place(state: State, where: GroupTopic) -> bool:
    """Whether each message of a group is in one place. False where the group pulled, and until a reset is swept.

    A message that was sent back before its offset was committed, or that a reset made void, is also in the queue.
    """
    found = state.subscriptions.get(where)
    return where not in state.sweeps and not (found and found.pulled)


def _count_leased(
    kv: Transaction,
    state: State,
    leased: list[tuple[int, int]],
    where: str,
    held: Counter[tuple[int, int]],
    released: dict[tuple[int, int], int],
) -> Iterator[str]:
    """Adds the members under leases to `held`; notes those that are released."""
    for ck_id, sub in leased:
        ck, lease = state.ck[ck_id], state.leases[(ck_id, sub)]
        group_id, topic_id = ck.group_id, ck.topic_id
        for member, place in _places(kv, ck, lease.undone):
            if lease.released >> member & 1:
                released[(ck_id, member)] = 1
            else:
                held[place] += 1
                unnamed = place[0] == check_dead_letters.REDRIVEN or not one_place(state, (group_id, topic_id))
                if not unnamed and not readers.has_passed(state, (group_id, topic_id, place[0]), place[1]):
                    yield f"{where}: queue {place[0]} offset {place[1]} is leased, but not passed"


def _places(kv: Transaction, ck: CheckPoint, bits: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """(member, its place) of the members in `bits`; the chunks of the others may be gone."""
    for member, run, offset, position, _ in located(kv, ck, bits):
        yield member, check_dead_letters.place_of(kv, ck.topic_id, position, run.queue, offset)


def _count_retries(
    kv: Transaction,
    state: State,
    group_id: GroupId,
    topic_id: TopicId,
    where: str,
    held: Counter[tuple[int, int]],
    released: dict[tuple[int, int], int],
) -> Iterator[str]:
    """Adds the retry entries to `held`; a tied one must have been released, and the other way round."""
    count = 0
    for _, value in kv.scan("rq", RQ_KEY.pack(group_id, topic_id, 0)[:8]):
        position, _, _, queue, offset, _, ck_id, member = RQ_VALUE.unpack_from(value)
        count += 1
        held[check_dead_letters.place_of(kv, topic_id, position, queue, offset)] += 1
        if ck_id in state.ck and not released.pop((ck_id, member), 0) and not state.torn(ck_id, member):
            yield f"{where}: a retry entry is tied to member {member} of CheckPoint {ck_id}, which did not release it"
    if count != state.stat[(group_id, topic_id)].retry:
        yield f"{where}: {count} retry entries, counted {state.stat[(group_id, topic_id)].retry}"
    for ck_id, member in released:
        yield f"{where}: member {member} of CheckPoint {ck_id} was released, but is not in the retry topic"


def _check_unsubscribed(kv: Transaction, state: State) -> Iterator[str]:
    """A group without counters in a topic has no other rows there, also after its subscription expired."""
    for name in ("poff", "taken", "begin", "sub", "rq", "fwait"):
        for key in kv.scan_keys(name):
            where = (U32.unpack_from(key)[0], U32.unpack_from(key, U32.size)[0])
            known = where[0] in state.groups and state.alive(where[1])
            if known and where not in state.stat:
                yield f"{name} of group {where[0]} in topic {where[1]} without counters of the group there"


def _check_pins(kv: Transaction, state: State) -> Iterator[str]:
    """The counts that keep chunks alive equal the retry entries that point into them."""
    log = Log(kv)
    for (ck_id, _), lease in state.leases.items():
        ck = state.ck.get(ck_id)
        if ck is not None and ck.topic_id in state.topics:
            for member, _, _, position, _ in located(kv, ck, lease.undone):
                if log.chunk_of(position) != ck.chunk_of(member):
                    yield f"CheckPoint {ck_id}: member {member} pins another chunk than the one it lies in"
    counted: Counter[int] = Counter()
    for kind, group_id, topic_id, position in itertools.chain(_retries(kv), _waiting(kv)):
        chunk = log.chunk_of(position)
        counted[chunk] += 1
        if chunk < 0 and group_id in state.groups and topic_id in state.topics:
            yield f"a {kind} entry points at {position}, where nothing is"
    stored = {U64.unpack(key)[0]: U32.unpack(value)[0] for key, value in kv.scan("pin")}
    for chunk in counted.keys() | stored.keys():
        if chunk >= 0 and counted[chunk] != stored.get(chunk, 0):
            yield f"chunk {chunk} has {counted[chunk]} retry entries, pinned {stored.get(chunk, 0)}"


def _retries(kv: Transaction) -> Iterator[tuple[str, int, int, int]]:
    """("retry", group id, topic id, position) of each retry entry."""
    for key, value in kv.scan("rq"):
        group_id, topic_id, _ = RQ_KEY.unpack(key)
        yield "retry", group_id, topic_id, RQ_VALUE.unpack_from(value)[0]


def _count_waiting(
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


def _waiting(kv: Transaction) -> Iterator[tuple[str, int, int, int]]:
    """("waiting", group id, topic id, position) of each waiting message, which holds its chunk."""
    for key, value in kv.scan("fwait"):
        group_id, topic_id, _, _ = FWAIT_KEY.unpack(key)
        yield "waiting", group_id, topic_id, U64.unpack_from(value)[0]


def _check_bytes(kv: Transaction, state: State) -> Iterator[str]:
    """The bytes of a topic equal those of its chunks."""
    for topic in state.topics.values():
        if topic.type == "LITE" and not topic.parent_id:
            continue
        found = sum(IDX_HEAD.unpack_from(value)[1] for _, value in kv.scan("idx", U32.pack(topic.topic_id)))
        counted = state.topic_stat[topic.topic_id].bytes
        if found != counted:
            yield f"topic {topic.name} has {found} bytes in its chunks, counted {counted}"


def differences(kv: Transaction, live: State) -> list[str]:
    """Compares the tables of a running broker, between its transactions, with those of a fresh start.

    It skips the transient tables, which a restart drops.
    """
    fresh = State()
    loading.load(fresh, kv)
    for state in (live, fresh):
        state.read_through(kv)
    try:
        return _differences(live, fresh)
    finally:
        for state in (live, fresh):
            state.read_through(None)


def _differences(live: State, fresh: State) -> list[str]:
    found = []
    names = {id(table): name for name, table in vars(live).items()}
    for table, again in zip(live.tables.lasting(), fresh.tables.lasting(), strict=True):
        name, ours, theirs = names[id(table)], _plain(table.committed()), _plain(again.committed())
        if ours != theirs:
            odd = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
            found += [f"{name}[{key}]: live {ours.get(key)}, fresh {theirs.get(key)}" for key in sorted(odd, key=repr)]
    return found


def _plain(table: dict[Item, Item]) -> dict[Item, Item]:
    """The table without entries that are zero or empty, with sorted tuples."""
    plain = {}
    for key, value in table.items():
        if (any(value) if isinstance(value, tuple) else value) or isinstance(value, CheckPoint):
            plain[key] = tuple(sorted(value, key=repr)) if type(value) is tuple else value
    return plain


def main(argv: list[str] | None = None) -> int:
    """`python -m popmq_server.embedded.fsck.check DIR`: 0 sound, 1 broken, 78 cannot be opened."""
    parser = argparse.ArgumentParser(prog="popmq check", description="Check the data folder of a stopped broker.")
    parser.add_argument("data", type=pathlib.Path, metavar="DIR")
    try:
        return report(check_folder(parser.parse_args(argv).data))
    except StartError as error:
        print(f"popmq: {error}", file=sys.stderr)
        return 78


def report(broken: list[str]) -> int:
    """Prints the broken invariants; returns the exit code."""
    for sentence in broken:
        print(sentence)
    count = "1 broken invariant" if len(broken) == 1 else f"{len(broken)} broken invariants"
    print(count if broken else "sound: every invariant holds")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
