"""Send-back: a consumer that pulls returns messages that it failed to process.

    pulled from a queue          counts as new work of the group: the queue's offset moves on without it      ┐
    pulled from the retry topic  its entry leaves the retry topic                                             ├─▶
                                                                                                              ┘
          attempts left, a delay        CheckPoint of kind backoff, then retry topic
          attempts left, no delay       retry topic
          none left, or `reject`        dead letter topic

A message is found by its exact place or not at all: one that retention dropped is MESSAGE_NOT_FOUND, never its
neighbour. A pull from a queue is the first attempt, one from the retry topic is one more than its entry holds; a
consumer that retried locally reports its own number. The message itself stays where it is, as for Pops: a retry is a
pointer. One request is one transaction, and OK means that it is on disk. A consumer that repeats a send-back because it
missed the answer sends the message back twice.
"""

from typing import NamedTuple

from popmq_server.contract.commands import Changed, SendBack, SentBack
from popmq_server.embedded.rules.delivery import (
    deadletter,
    fifo,
    invalidated,
    lease_history,
)
from popmq_server.embedded.rules.delivery.retry import RetryEntry, take, to_retry
from popmq_server.embedded.rules.delivery.subscription import expect_mode, note_use, resolve
from popmq_server.embedded.rules.pulling.offsets import ends
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.rules.topics.log import Log, entries
from popmq_server.embedded.rules.topics.topic_lifecycle import expect_creation
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import BACKOFF, CheckPoint, Run
from popmq_server.embedded.store.keys import RQ_KEY, RQ_VALUE
from popmq_server.errors import Later, Refused, no_queue
from popmq_server.values.ids import GroupTopic
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Group, Topic

NO_ATTEMPTS = "no attempts left"
#: Messages that one command sends back in a commit, each some 30 µs.
SENT_BACK_MAX = 300


class FoundMessage(NamedTuple):
    """A message that exists: its place as a run of one, its message group, and its entry if it is a retry."""

    run: Run
    message_group: bytes
    entry: RetryEntry | None


def send_back(tx: Tx, command: SendBack) -> list[Changed | Refused]:
    """Sends pulled messages back, grouped by delay, reason and outcome.

    Those beyond the limit of dead letters, and beyond SENT_BACK_MAX, get Later: the broker runs them again.
    """
    group, topic = resolve(tx, command.topic, command.group)
    expect_creation(topic, command.topic_created_ms)
    expect_mode(tx, group, topic, "PULL")
    note_use(tx, (group.group_id, topic.topic_id))
    results: list[Changed | Refused] = []
    alike: dict[tuple[int, str, bool], list[FoundMessage]] = {}
    seen: set[bytes] = set()
    budget = deadletter.budget(tx)
    for index, message in enumerate(command.messages):
        try:
            if isinstance(message, Refused):
                raise message
            if index >= SENT_BACK_MAX:
                raise Later
            found = _counted(_find(tx, group, topic, message, f"messages[{index}]"), message)
            if found.entry is not None and found.entry.key in seen:
                raise _gone(f"messages[{index}].offset", "the request names this message twice")
            dead = message.reject or found.run.attempts >= (message.max_attempts or group.max_attempts)
            if dead and not budget.fits(found.run.size):
                raise budget.refusal()
        except Refused as refused:
            results.append(refused)
            continue
        if found.entry is not None:
            seen.add(found.entry.key)
        delay_ms = 0 if dead else _delay_ms(group, message, found.run.attempts)
        reason = message.reason or (NO_ATTEMPTS if dead and not message.reject else "")
        alike.setdefault((delay_ms, reason, dead), []).append(found)
        results.append(Changed(tx.now_ms + delay_ms, dead))
    for (delay_ms, reason, dead), founds in alike.items():
        _leave(tx, group, topic, founds, command.client_id, delay_ms, reason, dead)
    return results


def _counted(found: FoundMessage, message: SentBack) -> FoundMessage:
    """Uses the consumer's number of attempts if it is larger."""
    return found._replace(run=found.run._replace(attempts=max(found.run.attempts, message.attempts)))


def _delay_ms(group: Group, message: SentBack, attempts: int) -> int:
    """The consumer's delay, or the group's backoff for the number of attempts."""
    if message.delay_ms is not None:
        return message.delay_ms
    return group.backoff_ms(attempts)


def _gone(field: str, why: str) -> Refused:
    """MESSAGE_NOT_FOUND: there is no message at this place, or none that can be read."""
    return Refused("MESSAGE_NOT_FOUND", why, field=field, action="drop the message: there is nothing to send back")


def _find(tx: Tx, group: Group, topic: Topic, message: SentBack, field: str) -> FoundMessage:
    """The message at exactly this place; Refused if there is none, or it cannot be read."""
    found = _find_retry(tx, group, topic, message, field) if message.retry else _find_queued(tx, topic, message, field)
    read = Log(tx.kv).fetch(topic.topic_id, found.run.position, found.run.size)
    if read is None:
        raise _gone(f"{field}.offset", "the message cannot be read any more")
    return found._replace(message_group=fifo.message_group_hash(read[1]) if topic.in_order else b"")


def _find_queued(tx: Tx, topic: Topic, message: SentBack, field: str) -> FoundMessage:
    """Finds a message by queue and offset; the pull was its first attempt."""
    if message.queue >= topic.queues:
        raise no_queue(topic.name, topic.queues, message.queue, f"{field}.queue")
    least, most = ends(tx, topic, message.queue)
    units = entries(tx.kv, topic.topic_id, message.queue, message.offset, 1) if message.offset < most else []
    if not units:
        raise _gone(f"{field}.offset", f"queue {message.queue} of topic {topic.name!r} has offsets {least}–{most - 1}")
    _, position, size = units[0]
    return FoundMessage(Run(message.queue, message.offset, 1, 1, position, size, tx.now_ms), b"", None)


def _find_retry(tx: Tx, group: Group, topic: Topic, message: SentBack, field: str) -> FoundMessage:
    """Finds a message by the number of its entry in the retry topic."""
    if message.queue:
        raise no_queue(f"{RETRY_PREFIX}{group.name}+{topic.name}", 1, message.queue, f"{field}.queue")
    key = RQ_KEY.pack(group.group_id, topic.topic_id, message.offset)
    value = tx.kv.get("rq", key)
    where = (group.group_id, topic.topic_id)
    if value is None or invalidated.has_entry(tx.state, where, message.offset, *RQ_VALUE.unpack_from(value)[3:5]):
        raise _gone(f"{field}.offset", f"entry {message.offset} is not in the retry topic")
    entry = RetryEntry(key, *RQ_VALUE.unpack_from(value))
    run = Run(entry.queue, entry.offset, 1, entry.attempts + 1, entry.position, entry.size, entry.past)
    return FoundMessage(run, b"", entry)


def _leave(
    tx: Tx, group: Group, topic: Topic, founds: list[FoundMessage], client: str, delay_ms: int, reason: str, dead: bool
) -> None:
    """Moves messages with the same outcome as members of one CheckPoint, which is stored only for a delay."""
    where = (group.group_id, topic.topic_id)
    ck = _checkpoint(tx, where, founds, client, reason, topic.in_order)
    entries = [found.entry for found in founds if found.entry is not None]
    if entries:
        take(tx, where, entries)
    if len(entries) < len(founds):
        readers.count(tx, where, start=len(entries) - len(founds))
    if dead:
        deadletter.dead_letter(tx, ck, ck.all_bits, reason, lease_history.NO_LEASE)
        return
    back_ms = tx.now_ms + delay_ms if delay_ms else 0
    lease_history.write_members(tx, ck, ck.all_bits, lease_history.NO_LEASE, lease_history.SENT_BACK, reason, back_ms)
    if delay_ms:
        leases.begin(tx, ck, tx.now_ms + delay_ms)
    else:
        to_retry(tx, ck, ck.all_bits, reason)


def _checkpoint(
    tx: Tx, where: GroupTopic, founds: list[FoundMessage], client: str, reason: str, in_order: bool
) -> CheckPoint:
    """A CheckPoint of kind backoff; no client has a handle on it."""
    log = Log(tx.kv)
    chunks: list[tuple[int, int]] = []
    for index, found in enumerate(founds):
        chunk = log.chunk_of(found.run.position)
        if not chunks or chunks[-1][1] != chunk:
            chunks.append((index, chunk))
    return leases.new_checkpoint(
        tx,
        where,
        BACKOFF,
        len(founds),
        (found.run for found in founds),
        chunks,
        client=client,
        reason=reason,
        message_groups=tuple(found.message_group for found in founds) if in_order else (),
    )
