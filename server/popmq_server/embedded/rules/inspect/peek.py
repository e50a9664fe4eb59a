"""Peek: the messages that a group's next Pop would deliver: the plan of a pop, never applied.

    Pop     choose ─▶ apply ─▶ lease         positions, turns, attempts, CheckPoint
    Peek    choose ─▶ rows                   changes nothing, not even the turns

A group that has not named the topic yet gets the messages from its start position, and is not bound to the topic. When
a plan reaches a bound before it finds a message, another piece continues where it stopped. Not in a FIFO topic, where
a second piece would depend on the messages that the first one lets wait.
"""

from popmq_server.contract.commands import PeekedPiece, PeekPiece
from popmq_server.embedded.rules.delivery.pick import Bounds
from popmq_server.embedded.rules.delivery.pop import choose, picking
from popmq_server.embedded.rules.delivery.subscription import filter_for, resolve, starts
from popmq_server.embedded.state.tx import Tx


def peek(tx: Tx, command: PeekPiece) -> PeekedPiece:
    """Runs one piece."""
    group, topic = resolve(tx, command.topic, command.group)
    wanted = filter_for(tx, group, topic, command.filter)
    where = (group.group_id, topic.topic_id)
    pick = picking(topic)(tx, group, topic, Bounds(command.messages_max, command.bytes_max, wanted=wanted))
    if command.begins is not None:
        pick.begins = command.begins
    elif where not in tx.state.stat:
        pick.begins = starts(tx, group, topic)
    choose(pick, range(topic.queues), group.in_flight_max)
    reached = pick.begins | pick.poff
    again = not pick.rows and pick.unfinished and topic.type != "FIFO" and reached != command.begins
    return PeekedPiece(pick.rows, reached if again else None)
