"""`popmq check` of messages that are not visible yet: leased, delayed, half, staged, or the message of a schedule.

    deadlines            no lease ends later than the longest lease that a request may ask for
    sched ⇄ tsched       each has the other, its topic exists, and the message is intact
    half → hmsg, hdue    each half message has its bytes and its next check; there are no others
    tdone                a transaction that ended has no half message left: visible if and only if committed
    counters             delayed and half of a topic equal a scan
    staged → stage       a stage has all its messages and bytes, and each block its checksum
    publish → stage      a stage in the list has blocks left
    stage → either       each block belongs to one stage: committed or not, never both
    cron → cronmsg       a schedule has its message, which matches its checksum; each message has its schedule
    next_ms              is an occurrence of the expression; a paused schedule has none

Topics that are being removed are not checked.
"""

from collections import Counter
from collections.abc import Iterator

from popmq_server.embedded.rules.delivery import revive
from popmq_server.embedded.rules.schedules import cron, schedules
from popmq_server.embedded.rules.sending import delay, stages, transaction
from popmq_server.embedded.rules.sending.transaction import CHECKS_MAX, Half
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.keys import (
    HALF_KEY,
    HDUE_KEY,
    PUBLISH_KEY,
    SCHED_KEY,
    STAGE_KEY,
    SUB_OWNER,
    TDONE_KEY,
    TSCHED_KEY,
    U32,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.outgoing import hash8
from popmq_server.values.records import Schedule


def check_deadlines(kv: Transaction, state: State) -> Iterator[str]:
    """Leases that would hold their messages for years, because a bit of their deadline is wrong."""
    for due_ms, ck_id, sub in revive.too_late(kv, state.counters[""].saved_ms):
        if sub == SUB_OWNER:
            yield f"the lease of owner {ck_id} has the deadline {due_ms}, later than any lease: release the owner"
        else:
            yield f"CheckPoint {ck_id}: part {sub} has the deadline {due_ms}, later than any lease: end it by EndLease"


def check_pending(kv: Transaction, state: State) -> Iterator[str]:
    """Every broken invariant of delayed and half messages."""
    delayed: Counter[int] = Counter()
    yield from _check_delayed(kv, state, delayed)
    halves = _halves(kv)
    yield from _check_halves(kv, state, halves)
    yield from _check_strays(kv, halves)
    yield from _check_ended(kv, halves)
    half = Counter(topic_id for topic_id, _ in halves)
    for topic_id, topic in state.topics.items():
        stat = state.topic_stat.get(topic_id)
        counted = (stat.delayed, stat.half) if stat else (0, 0)
        if counted != (delayed[topic_id], half[topic_id]):
            yield f"{topic.name}: {delayed[topic_id]} delayed, {half[topic_id]} half messages, counted {counted}"


def _check_delayed(kv: Transaction, state: State, counted: Counter[int]) -> Iterator[str]:
    """Adds up the delayed messages of each topic on the way."""
    for key, value in kv.scan("sched"):
        clock, due_ms, number, topic_id = SCHED_KEY.unpack(key)
        where = f"the delayed message {number} of topic {topic_id}"
        counted[topic_id] += 1
        if topic_id in state.purges:
            continue
        if topic_id not in state.topics:
            yield f"{where} belongs to no topic"
        if number >= state.counters[""].sched_id:
            yield f"{where} has a number that was never assigned"
        message = delay.read(bytes(value))
        found = kv.get("tsched", TSCHED_KEY.pack(topic_id, clock, due_ms, number))
        if message is None:
            yield f"{where} does not match its checksum"
        elif found is None or found != hash8(message.message_id):
            yield f"{where} is not among those of its topic"
    for key in kv.scan_keys("tsched"):
        topic_id, clock, due_ms, number = TSCHED_KEY.unpack(key)
        if kv.get("sched", SCHED_KEY.pack(clock, due_ms, number, topic_id)) is None:
            yield f"topic {topic_id} has a delayed message {number}, which is not there"


def _halves(kv: Transaction) -> dict[tuple[int, int], Half]:
    """All half messages by topic and transaction."""
    keys = ((HALF_KEY.unpack(key), value) for key, value in kv.scan("half"))
    return {(topic_id, txn_id): transaction.decode(topic_id, txn_id, value) for (topic_id, txn_id), value in keys}


def _check_halves(kv: Transaction, state: State, halves: dict[tuple[int, int], Half]) -> Iterator[str]:
    """Each half message has its bytes and its next check."""
    for (topic_id, txn_id), half in halves.items():
        where = f"the half message {txn_id} of topic {topic_id}"
        if topic_id in state.purges:
            continue
        if topic_id not in state.topics:
            yield f"{where} belongs to no topic"
        if txn_id >= state.counters[""].txn_id or half.checks > CHECKS_MAX:
            yield f"{where} has a number that was never assigned, or {half.checks} checks"
        raw = kv.get("hmsg", half.key)
        if raw is None or transaction.read(raw) is None:
            yield f"{where} has no bytes, or they do not match their checksum"
        if kv.get("hdue", HDUE_KEY.pack(half.waits_for, half.next_ms, txn_id)) is None:
            yield f"{where} has no next check"


def _check_strays(kv: Transaction, halves: dict[tuple[int, int], Half]) -> Iterator[str]:
    """Bytes and checks have their half message."""
    for key in kv.scan_keys("hmsg"):
        if HALF_KEY.unpack(key) not in halves:
            yield f"the bytes of {HALF_KEY.unpack(key)} belong to no half message"
    for key, value in kv.scan("hdue"):
        lane, due_ms, txn_id = HDUE_KEY.unpack(key)
        half = halves.get((lane or U32.unpack(value)[0], txn_id))
        if half is None or (half.waits_for, half.next_ms) != (lane, due_ms):
            yield f"a check of the half message {txn_id} at {due_ms} is not its next one"


def _check_ended(kv: Transaction, halves: dict[tuple[int, int], Half]) -> Iterator[str]:
    """An ended transaction has no half message."""
    open_ids = {txn_id for _, txn_id in halves}
    for key in kv.scan_keys("tdone"):
        txn_id = TDONE_KEY.unpack(key)[1]
        if txn_id in open_ids:
            yield f"the transaction {txn_id} has ended, and its half message is still there"


def check_stages(kv: Transaction, state: State) -> Iterator[str]:
    """Every broken invariant of stages and their blocks."""
    messages, size = Counter[int](), Counter[int]()
    yield from _check_blocks(kv, messages, size)
    used: Counter[int] = Counter()
    for _, raw in kv.scan("staged"):
        one = stages.StageRow(*stages.STAGED.unpack_from(raw))
        used[one.number] += 1
        found = messages[one.number], size[one.number]
        if found != (one.messages, one.bytes):
            yield f"stage {one.number} has {found} messages and bytes, counted {(one.messages, one.bytes)}"
    for key, raw in kv.scan("publish"):
        number, _, _ = stages.PUBLISH.unpack(raw)
        used[number] += 1
        if number not in size:
            yield f"stage {number} is to be published, and has no messages left"
        if max(number, PUBLISH_KEY.unpack(key)[0]) >= state.counters[""].stage_id:
            yield f"stage {number} has a number that was never assigned"
    for number in size.keys() | used.keys():
        if used[number] != 1:
            yield f"the blocks of stage {number} belong to {used[number]} stages"


def _check_blocks(kv: Transaction, messages: Counter[int], size: Counter[int]) -> Iterator[str]:
    """Adds up the messages and bytes of each stage on the way."""
    for key, raw in kv.scan("stage"):
        number, piece, block = STAGE_KEY.unpack(key)
        found = stages.read_block(bytes(raw))
        size[number] += len(raw)
        if found is None:
            yield f"block {block} of piece {piece} of stage {number} does not match its checksum"
        else:
            messages[number] += len(found)


MISSED = ("SKIP", "ONCE", "ALL")


def check_schedules(kv: Transaction, state: State) -> Iterator[str]:
    """Every broken invariant of schedules."""
    messages = {bytes(key).decode(errors="replace"): bytes(value) for key, value in kv.scan("cronmsg")}
    for name, schedule in state.schedules.items():
        raw = messages.pop(name, None)
        if raw is None:
            yield f"schedule {name!r} has no message"
        elif schedules.opened(raw) is None:
            yield f"the message of schedule {name!r} does not match its checksum"
        yield from _check_settings(name, schedule)
    yield from (f"the message of schedule {name!r} has no schedule" for name in messages)


def _check_settings(name: str, schedule: Schedule) -> Iterator[str]:
    if schedule.name != name:
        yield f"schedule {name!r} calls itself {schedule.name!r}"
    if schedule.missed not in MISSED:
        yield f"schedule {name!r} has the unknown policy {schedule.missed!r}"
    if schedule.paused and schedule.next_ms:
        yield f"schedule {name!r} is paused, and has a next occurrence"
    try:
        found = cron.following(schedule.cron, schedule.zone, schedule.next_ms - 1) if schedule.next_ms else 0
    except cron.CronError as error:
        yield f"schedule {name!r} cannot be read: {error}"
        return
    if found != schedule.next_ms:
        yield f"schedule {name!r}: {schedule.next_ms} is not an occurrence of {schedule.cron!r}"
