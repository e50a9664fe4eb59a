"""The consume mode of a group in a topic: POP with leases, or PULL with offsets. It can change while consumers run.

                      POP ─────────────────────────────▶ PULL
    not popped yet    poff: the next offset to pop         the same number: the committed offset
    leased            CheckPoints, sets of owners          moved to the retry topic, with their counted attempts
    retry, backoff    unchanged                            read as %RETRY%group+topic
    acked             not delivered again

                      PULL ────────────────────────────▶ POP
    not committed     popped: messages that were pulled but not committed come again, as after a consumer's crash
    sent back         popped from the retry topic, unless not committed either: then its queue delivers it
    committed         not delivered again

After the switch the broker refuses requests of the other mode, so nothing is finished twice: the handle of a message in
the retry topic is invalid, and a client cannot move the offset of a group that pops. A switch of a FIFO topic to POP
restores the order of its message groups (sweep.py).

See docs/decisions/0036-consume-modes.md.
"""

from popmq_server.contract.commands import SetConsumeMode
from popmq_server.embedded import operations
from popmq_server.embedded.operations import ModeSet
from popmq_server.embedded.rules.delivery import sweep
from popmq_server.embedded.rules.delivery.fair import choice
from popmq_server.embedded.rules.delivery.subscription import bind, resolve
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import group_not_found, invalid, topic_not_found
from popmq_server.values.records import (
    Subscription,
    Terms,
)


def set_consume_mode(tx: Tx, command: SetConsumeMode) -> ModeSet:
    """Sets mode and share number; idempotent."""
    group, topic = resolve(tx, command.topic, command.group)
    where = (group.group_id, topic.topic_id)
    if command.start is not None and where in tx.state.stat:
        raise invalid(
            f"group {group.name!r} has its position in topic {topic.name!r} already",
            field="start",
            action=f"leave it out, or move the group: popmq offsets reset {topic.name} {group.name} --to latest",
        )
    if command.mode == "PULL" or command.share_number:
        choice.refuse_pull(tx, group, topic, command.share_number)
    bind(tx, group, topic, command.start)
    before, after = readers.switch(tx, where, command.mode, command.share_number)
    if after.mode != before.mode:
        tx.wake(*where)  # parked calls are refused now
        tx.arrive(topic.topic_id, None)
        if after.pulls:
            sweep.to_pull(tx, where)
        else:
            sweep.to_pop(tx, where, topic.queues, topic.type == "FIFO")
    return ModeSet(after, sweep.step(tx, where))


def terms(tx: Tx, query: operations.TermsOf) -> dict[str, Terms]:
    """The queue count, mode and share number of a group in each of these topics; leaves out missing topics.

    If the only topic is missing, that is reported before a missing group, as in subscription.resolve.
    """
    group_name, names = query.group, query.topics
    group, topics = readers.group(tx, group_name), registry.topics(tx, names)
    if group is None and len(names) == 1 and not topics:
        raise topic_not_found(names[0])
    if group is None:
        raise group_not_found(group_name)
    found = {}
    for topic in topics:
        how = tx.state.subscriptions.get((group.group_id, topic.topic_id), Subscription())
        found[topic.name] = Terms(topic.queues, how.mode, how.share_number or group.share_number)
    return found
