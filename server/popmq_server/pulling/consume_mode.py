"""The consume mode of a group in a topic: POP with leases, PULL with offsets. Switched while consumers run.

                      POP ─────────────────────────────▶ PULL
    not popped yet    poff: the next offset to pop         the same number: the committed offset
    leased            CheckPoints, sets of owners          retry topic, with the attempts that were counted
    retry, backoff    stay                                 are read as %RETRY%group+topic
    acked             does not come again

                      PULL ────────────────────────────▶ POP
    not committed     is popped: what was pulled of it comes again, as for any consumer that died
    sent back         is popped from the retry topic, unless it was not committed either: then its queue has it
    committed         does not come again

From the switch on the requests of the other mode are refused, so nothing is finished twice: a handle whose message has
gone to the retry topic has lapsed, and an offset of a group that pops is not moved by a client. In a FIFO topic the
order of the message groups is made anew by a switch to POP (sweep.py).
"""

from popmq_server.commands import SetConsumeMode
from popmq_server.delivery import sweep
from popmq_server.delivery.subscription import bind, resolve
from popmq_server.errors import group_not_found, invalid, topic_not_found
from popmq_server.model.records import Held, Subscription, Sweep, Terms
from popmq_server.state.tx import Tx


def set_consume_mode(tx: Tx, command: SetConsumeMode) -> tuple[Subscription, bool]:
    """Sets mode and share number; whether something is still on its way. The same again changes nothing."""
    group, topic = resolve(tx, command.topic, command.group)
    where = (group.group_id, topic.topic_id)
    if command.start is not None and where in tx.state.stat:
        raise invalid(
            f"group {group.name!r} has its position in topic {topic.name!r} already",
            field="start",
            action="leave it out, or move the group with ResetOffsets",
        )
    bind(tx, group, topic, command.start)
    before = tx.state.subscriptions.get(where, Subscription())
    after = before._replace(
        mode=command.mode, share_number=command.share_number, pulled=before.pulled or command.mode == "PULL"
    )
    if after != before:
        tx.state.subscriptions[where] = after
    if after.mode != before.mode:
        tx.wake(*where)  # Pops and Pulls that wait are refused now
        tx.arrive(topic.topic_id, None)
        if after.pulls:
            _to_pull(tx, where)
        else:
            _to_pop(tx, where, topic.queues, topic.type == "FIFO")
    return after, sweep.step(tx, where)


def _to_pull(tx: Tx, where: tuple[int, int]) -> None:
    """What is leased moves; message groups that were being put in order stay in the retry topic."""
    left = tx.state.sweeps.get(where, Sweep())
    tx.state.sweeps[where] = left._replace(to_retry=True, to_lines=False)
    tx.state.walked.pop(where)


def _to_pop(tx: Tx, where: tuple[int, int], queues: int, in_order: bool) -> None:
    """Copies of what is not committed are void: the queue delivers it anyway."""
    left = tx.state.sweeps.get(where, Sweep())
    if left.to_retry:
        tx.state.sweeps[where] = left._replace(to_retry=False)
    retries, held = tx.state.stat[where].retry, tx.state.held.get(where, Held())
    if retries or held.backoff:
        sweep.void(tx, where, tuple(tx.state.poff.get((*where, queue), 0) for queue in range(queues)))
    if retries and in_order:
        tx.state.sweeps[where] = tx.state.sweeps[where]._replace(to_lines=True)


def terms(tx: Tx, group_name: str, names: tuple[str, ...]) -> dict[str, Terms]:
    """What the assignment of a group in each of these topics depends on; topics that do not exist are left out.

    Of a question about one topic that is looked for first, as everywhere (subscription.resolve).
    """
    group, topics = tx.group(group_name), list(filter(None, map(tx.topic, names)))
    if group is None and len(names) == 1 and not topics:
        raise topic_not_found(names[0])
    if group is None:
        raise group_not_found(group_name)
    found = {}
    for topic in topics:
        how = tx.state.subscriptions.get((group.group_id, topic.topic_id), Subscription())
        found[topic.name] = Terms(topic.queues, how.mode, how.share_number or group.share_number)
    return found
