"""`popmq check` of messages that are not visible yet: under a lease, delayed, or half messages.

    deadlines            no lease ends later than the longest lease that a request may ask for
    sched ⇄ tsched       each has the other, its topic exists, and the message is intact
    half → hmsg, hdue    each half message has its bytes and its next check; there are no others
    tdone                a transaction that ended has no half message left: visible if and only if committed
    counters             delayed and half of a topic equal a scan

Topics that are being removed are not checked.
"""

from collections import Counter
from collections.abc import Iterator

from popmq_server.embedded.rules.delivery import revive
from popmq_server.embedded.rules.sending import delay, transaction
from popmq_server.embedded.rules.sending.transaction import CHECKS_MAX, Half
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.keys import HALF_KEY, HDUE_KEY, SCHED_KEY, SUB_OWNER, TDONE_KEY, TSCHED_KEY, U32
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.outgoing import hash8


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
    """Each with its bytes and its next check."""
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
