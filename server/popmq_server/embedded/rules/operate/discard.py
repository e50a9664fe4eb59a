"""Discard: removes dead letters, as a mark in `gone`: readers skip them, and they are not counted (redrive.py).

Nothing is delivered, so the origin may be gone, and a full store does not refuse it. `why` shows it by a row of history
at the place where the message came from. The bytes are freed as those of redriven dead letters are: retention.py.
"""

from popmq_server.contract.commands import DiscardPiece, Failure, RedrivenPiece
from popmq_server.embedded.rules.delivery import deadletter, history
from popmq_server.embedded.rules.delivery.deadletter import Origin
from popmq_server.embedded.rules.operate import redrive
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state.tx import Tx
from popmq_server.values import fields
from popmq_server.values.records import Group, Topic


def discard(tx: Tx, command: DiscardPiece) -> RedrivenPiece:
    """Discards one piece. Named dead letters that are not there are reported as failures."""
    group, dead_letters = redrive.dead_letters_of(tx, command.group)
    failures: list[Failure] = []
    if command.offsets is None:
        chosen = redrive.following(tx, dead_letters, command.start, command.stop)
    else:
        chosen = redrive.named(tx, dead_letters, command.offsets, failures)
    counts: dict[str, int] = {}
    log, offsets, origins = Log(tx.kv), list[int](), list[Origin]()
    for offset, position, size in chosen.units:
        read = log.fetch(dead_letters.topic_id, position, size)
        opened = deadletter.opened(read[1]) if read else None
        origin = opened[1] if opened else Origin()  # a damaged one too is discarded, unless others are wanted
        if other := redrive.other_than(command, origin):
            if command.offsets is not None:
                message_id = fields.text(read[1], fields.MESSAGE_ID) if read else ""
                failures.append(Failure(offset, message_id, redrive.not_there(dead_letters, offset, other)))
            continue
        counts[origin.topic] = counts.get(origin.topic, 0) + 1
        offsets.append(offset)
        origins.append(origin)
    deadletter.mark_gone(tx, dead_letters.topic_id, 0, offsets)
    if group is not None:
        _note(tx, group, origins)
    return RedrivenPiece(counts, failures, *chosen[1:])


def _note(tx: Tx, group: Group, origins: list[Origin]) -> None:
    """Writes history where the messages came from, if the topic is still there and has the group."""
    places: dict[Topic, list[tuple[int, int]]] = {}
    for origin in origins:
        topic = tx.topic(origin.topic)
        if topic is None or topic.type == "LITE" or topic.created_ms > origin.dead_ms:
            continue
        if (group.group_id, topic.topic_id) in tx.state.stat:
            places.setdefault(topic, []).append((origin.queue, origin.offset))
    for topic, some in places.items():
        history.note(tx, (group.group_id, topic.topic_id), some, history.DEAD, history.DISCARDED_REASON)
