"""The invariants that a start compares, once the tables are loaded: a broken one refuses it, and names the repair.

    rows of the tables      numbers that were given, names, positions, ends of queues, counters, tokens, schedules
    ck ⇄ due                as many CheckPoints as leases: the keys are compared only if the numbers differ
    publish → stage         the list of stages is short

A start would serve such a store and lose or repeat messages: a position beyond the end of its queue skips what is
sent next. Each comparison costs less than the row took to load, and none reads history or the log. What loading reads
itself, the rows of leases and CheckPoints, is compared there.

`popmq check --repair` mends each of them (`mended`): rather a message is delivered again than not at all.

See docs/decisions/0068-invariants.md.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import BrokenInvariant, BrokenStore
from popmq_server.embedded.rules.sending import stages
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store import checkpoint
from popmq_server.embedded.store.checkpoint import CheckPoint, Lease
from popmq_server.embedded.store.keys import (
    CQ_KEY,
    DUE_KEY,
    NEVER,
    POFF_KEY,
    QUEUE_ENDS,
    QUEUE_KEY,
    STAT_KEY,
    SUB_OWNER,
    TAKEN_BLOCK,
    TAKEN_KEY,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.row_formats import numbers
from popmq_server.embedded.store.table import Item
from popmq_server.values.ids import GroupTopic
from popmq_server.values.records import Schedule, Stat, TopicStat

_COUNTERS = ("meta", b"counters")
_TOPIC_COUNTS = {
    "bytes": "topic_bytes_counted",
    "delayed": "delayed_counted",
    "half": "half_counted",
    "redriven": "redriven_counted",
    "abandoned": "abandoned_counted",
}


class Finding(NamedTuple):
    """A broken invariant of a row. `mended`: the row as a repair puts it; None: it drops the row."""

    broken: BrokenInvariant
    mended: bytes | None

    @property
    def row(self) -> tuple[str, bytes]:
        """(table, key)."""
        assert self.broken.row is not None
        return self.broken.row


def verify(kv: Transaction, state: State) -> None:
    """Raises BrokenStore for the first finding."""
    for finding in findings(kv, state):
        raise BrokenStore(finding.broken)


def findings(kv: Transaction, state: State) -> Iterator[Finding]:
    """Every broken invariant of the loaded tables."""
    yield from _numbers(kv, state)
    yield from _names(state)
    yield from _positions(state)
    yield from _ends(state)
    yield from _counts(kv, state)
    yield from _topic_counts(kv, state)
    yield from _tokens(kv, state)
    yield from _schedules(state)
    yield from _leases(kv, state)
    yield from _stages(kv, state)


def _found(name: str, row: tuple[str, bytes], mended: bytes | None, /, **values: object) -> Finding:
    return Finding(BrokenInvariant(name, row, values), mended)


def _numbers(kv: Transaction, state: State) -> Iterator[Finding]:
    """No number in use is given again."""
    given = state.counters[""]
    if (last := kv.last("log")) is not None and (end := U64.unpack(last[0])[0] + len(last[1])) > given.position:
        mended = _packed(given._replace(position=end))
        yield _found("log_ends_before_next_position", _COUNTERS, mended, end=end, next=given.position)
    if (last := kv.last("ck")) is not None and (number := U64.unpack(last[0])[0]) >= given.ck_id:
        mended = _packed(given._replace(ck_id=number + 1))
        yield _found("checkpoint_number_given", _COUNTERS, mended, checkpoint=number, next=given.ck_id)
    greatest = max([0, *state.topics, *state.groups, *state.purges, *state.owner_keys])
    if greatest >= given.entity:
        mended = _packed(given._replace(entity=greatest + 1))
        yield _found("ids_given", _COUNTERS, mended, id=greatest, next=given.entity)


def _packed(counters: Item) -> bytes:
    return b"".join(map(U64.pack, counters))


def _names(state: State) -> Iterator[Finding]:
    """Each name leads to the topic or group that has it. A repair has made them so before (repair.py)."""
    for (kind, name), entity_id in state.ids.items():
        known: Item = (state.topics if kind == "t" else state.groups).get(entity_id)
        if (known is None or known.name != name) and entity_id not in state.purges:
            invariant = "topic_has_its_name" if kind == "t" else "group_has_its_name"
            yield _found(invariant, ("name", (kind + name).encode()), None, name=name, id=entity_id)


def _positions(state: State) -> Iterator[Finding]:
    """The position of each group lies in its queue, and so does what it passed beyond that."""
    ends = state.queue_max
    for where, offset in state.poff.items():
        if offset > (end := ends.get(where[1:], 0)) and state.alive(where[1]):
            row = "poff", POFF_KEY.pack(*where)
            yield _found("position_in_queue", row, U64.pack(end), where=where, offset=offset, end=end)
    for where, blocks in state.taken.items():
        begin, end = state.poff.get(where, 0) + 1, ends.get(where[1:], 0)
        for block, bits in blocks.items() if state.alive(where[1]) else ():
            first = block * TAKEN_BLOCK
            inside = (1 << max(0, end - first)) - 1 & ~((1 << max(0, begin - first)) - 1)
            if not bits or bits & ~inside:
                left = bits & inside
                raw = left.to_bytes((left.bit_length() + 7) // 8, "little") if left else None
                row = "taken", TAKEN_KEY.pack(*where, block)
                yield _found("passed_ahead_of_position", row, raw, where=where, position=begin - 1, end=end)


def _ends(state: State) -> Iterator[Finding]:
    """No queue begins beyond its end."""
    for where, least in state.queue_min.items():
        if least > (end := state.queue_max.get(where, 0)):
            row = "queue", QUEUE_KEY.pack(*where)
            yield _found("queue_begins_before_its_end", row, QUEUE_ENDS.pack(least, least), where=where, end=end)


# ── Counters ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _counts(kv: Transaction, state: State) -> Iterator[Finding]:
    """No counter of a group in a topic is negative, except the sum of the offsets at which it began."""
    for where, stat in state.stat.items():
        if min(stat) >= 0:
            continue
        low = {name for name, count in stat._asdict().items() if count < 0 and name != "start"}
        if not low or not state.alive(where[1]):
            continue
        lite = (topic := state.topics[where[1]]).type == "LITE" and not topic.parent_id
        invariant = "finished_counted"
        if low <= {"retry", "waiting"}:
            invariant = "lite_returns_counted" if lite else "retry_counted" if "retry" in low else "waiting_counted"
        mended = numbers(Stat)[0](_recounted(kv, state, where, stat, lite=lite))
        yield _found(invariant, ("stat", STAT_KEY.pack(*where)), mended, where=where, counters=stat)


def _recounted(kv: Transaction, state: State, where: GroupTopic, stat: Stat, *, lite: bool) -> Stat:
    """The counters with retry and waiting entries counted again; others that are negative are 0."""
    of = [topic_id for (parent, _), topic_id in state.lite_ids.items() if parent == where[1]] if lite else [where[1]]
    prefixes = [STAT_KEY.pack(where[0], topic_id) for topic_id in of]
    retry, waiting = (sum(1 for prefix in prefixes for _ in kv.scan_keys(name, prefix)) for name in ("rq", "fwait"))
    floors = {name: max(0, count) for name, count in stat._asdict().items() if name != "start"}
    return stat._replace(**floors | {"retry": retry, "waiting": waiting})


def _topic_counts(kv: Transaction, state: State) -> Iterator[Finding]:
    """No counter of a topic is negative."""
    for topic_id, stat in state.topic_stat.items():
        if min(stat) < 0 and state.alive(topic_id):
            name = next(name for name, count in stat._asdict().items() if count < 0)
            mended = numbers(TopicStat)[0](_recounted_topic(kv, state, topic_id, stat))
            yield _found(_TOPIC_COUNTS[name], ("tstat", U32.pack(topic_id)), mended, topic=topic_id, counters=stat)


def _recounted_topic(kv: Transaction, state: State, topic_id: int, stat: TopicStat) -> TopicStat:
    """The counters of a topic, counted again; a LITE topic has those of its lite topics."""
    lites = [lite_id for (parent, _), lite_id in state.lite_ids.items() if parent == topic_id]
    found = Counter[str]()
    for prefix in map(U32.pack, (topic_id, *lites)):
        found["bytes"] += sum(IDX_HEAD.unpack_from(value)[1] for _, value in kv.scan("idx", prefix))
        found["delayed"] += sum(1 for _ in kv.scan_keys("tsched", prefix))
        found["half"] += sum(1 for _ in kv.scan_keys("half", prefix))
        for _, queue, offset in map(CQ_KEY.unpack, kv.scan_keys("gone", prefix)):
            found["redriven"] += offset >= state.queue_min.get((U32.unpack(prefix)[0], queue), 0)
    return TopicStat(abandoned=max(0, stat.abandoned), **{name: found[name] for name in stat._fields[:4]})


# ── Tokens, schedules, stages ────────────────────────────────────────────────────────────────────────────────────────


def _tokens(kv: Transaction, state: State) -> Iterator[Finding]:
    """A token that sealed messages has their CheckPoint. Mended, its set stays sealed and has none."""
    for key, token in state.tokens.items():
        known = key[0] in state.groups and key[1] in state.topics
        if known and token.ck_id and kv.get("ck", U64.pack(token.ck_id)) is None:
            row = "tok", STAT_KEY.pack(*key[:2]) + key[2]
            mended = json.dumps(token._replace(ck_id=0)._asdict(), ensure_ascii=False).encode()
            yield _found("token_has_its_checkpoint", row, mended, checkpoint=token.ck_id, epoch=token.epoch)


def _schedules(state: State) -> Iterator[Finding]:
    """A schedule has the name under which it is stored; one that is paused has no next time."""
    for name, schedule in state.schedules.items():
        row = "cron", name.encode()
        if schedule.name != name:
            yield _found("schedule_has_its_name", row, _schedule(schedule._replace(name=name)), name=schedule.name)
        elif schedule.paused and schedule.next_ms:
            mended = _schedule(schedule._replace(next_ms=0))
            yield _found("schedule_paused_has_no_time", row, mended, next_ms=schedule.next_ms)


def _schedule(schedule: Schedule) -> bytes:
    return json.dumps(schedule._asdict(), ensure_ascii=False).encode()


def _stages(kv: Transaction, state: State) -> Iterator[Finding]:
    """A stage of a committed batch has messages until all of them are visible."""
    for key, raw in kv.scan("publish"):
        number, topic_id, publish = stages.PUBLISH.unpack(raw)
        wanted = publish and topic_id in state.topics
        if wanted and next(kv.scan_keys("stage", stages.pieces_of(number)), None) is None:
            yield _found("published_stage_has_messages", ("publish", key), None, number=number)


# ── Leases ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _leases(kv: Transaction, state: State) -> Iterator[Finding]:
    """Each lease has its CheckPoint, and each CheckPoint a lease; mended, one without a lease gets one that is due."""
    if state.leases.checkpoints() == kv.count("ck"):
        return
    leased, stored = set[int](), {int(U64.unpack(key)[0]) for key in kv.scan_keys("ck")}
    for key in kv.scan_keys("due"):
        _, ck_id, sub = DUE_KEY.unpack(key)
        if sub != SUB_OWNER:
            leased.add(ck_id)
            if ck_id not in stored:
                yield _found("lease_has_checkpoint", ("due", key), None, checkpoint=ck_id)
    for ck_id in sorted(stored - leased):
        ck = checkpoint.decode(ck_id, memoryview(bytes(kv.get("ck", U64.pack(ck_id)) or b"")))
        due_ms = NEVER if ck.owner_id else state.counters[""].saved_ms
        mended = checkpoint.encode_lease(0, Lease(due_ms, ck.all_bits), ck.members)
        yield _found("checkpoint_has_lease", ("due", DUE_KEY.pack(due_ms, ck_id, 0)), mended, checkpoint=ck_id)


def mended_lease(kv: Transaction, key: bytes) -> tuple[bytes, bytes] | None:
    """(key, value) of a row of `due` as it has to be; None: it holds nothing. Doubtful members are undone."""
    due_ms, ck_id, sub = DUE_KEY.unpack(key)
    ck: CheckPoint = checkpoint.decode(ck_id, memoryview(bytes(kv.get("ck", U64.pack(ck_id)) or b"")))
    width, raw = (ck.members + 7) // 8, bytes(kv.get("due", key) or b"")
    parts = [int.from_bytes(raw[at * width : (at + 1) * width], "little") for at in range(4 if due_ms == NEVER else 1)]
    whole = len(raw) >= len(parts) * width
    undone = ck.all_bits & ~parts[0] if whole else ck.all_bits
    if not undone and not ck.owner_id:
        return None
    lease = Lease(NEVER if ck.owner_id else due_ms if due_ms < NEVER else 0, undone)
    if ck.owner_id and whole and due_ms == NEVER and len(raw) >= 4 * width + U64.size:
        released = parts[2] & undone & parts[3]
        first = U64.unpack_from(raw, 4 * width)[0]
        lease = Lease(NEVER, undone, parts[1] & ck.all_bits & ~undone, released, first, parts[3])
    return DUE_KEY.pack(lease.due_ms, ck_id, sub), checkpoint.encode_lease(sub, lease, ck.members)
