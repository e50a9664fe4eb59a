"""Peek: what a group's next Pop would deliver, with no effect: the plan of a pop, never applied.

    Pop     choose ─▶ apply ─▶ lease         positions, turns, attempts, CheckPoint
    Peek    choose ─▶ rows                   nothing, not even a turn

A group that has not named the topic yet is shown what it would get, and is not bound to it. A plan that was cut short
before it found anything goes on from where it stopped, in another piece; of a FIFO topic the first piece is all, since
what a second one may take depends on what the first would have parked.
"""

from popmq_server.commands import Peek, Peeked
from popmq_server.delivery.pop import choose, picking
from popmq_server.delivery.subscription import filter_for, resolve, starts
from popmq_server.state.tx import Tx


def peek(tx: Tx, command: Peek) -> Peeked:
    """One piece."""
    group, topic = resolve(tx, command.topic, command.group)
    wanted = filter_for(tx, group, topic, command.filter)
    where = (group.group_id, topic.topic_id)
    pick = picking(topic)(tx, group, topic, command.messages_max, command.bytes_max, wanted=wanted)
    if command.begins is not None:
        pick.begins = command.begins
    elif where not in tx.state.stat:
        pick.begins = starts(tx, group, topic)
    choose(pick, range(topic.queues), group.in_flight_max)
    reached = pick.begins | pick.poff
    again = not pick.rows and pick.unfinished and topic.type != "FIFO" and reached != command.begins
    return Peeked(pick.rows, reached if again else None)
