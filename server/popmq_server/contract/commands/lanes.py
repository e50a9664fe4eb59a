"""What the writer knows of each command, declared with its class: its lane, whether it needs room, and its entries.

    @command(LANE_SEND, needs_room=True, entries="entries")
    class Send(NamedTuple): ...

A class without a declaration is not a command: `LANES[type(command)]` raises KeyError before anything has run. Queries
declare themselves (queries.py).
"""

from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C", bound=type)

#: The order within a commit batch: first what frees, then what stores, then what delivers: Pops never delay an Ack.
#: A command that reads what others of its batch store belongs to the last one.
LANE_ACK, LANE_SEND, LANE_POP = 0, 1, 2

#: The lane of each command.
LANES: dict[type, int] = {}
#: The commands that are refused as a whole if the store has no room.
NEED_ROOM: set[type] = set()
#: For commands with many entries: the field that has them. Their field `bytes`, if any, is the size of the texts.
ENTRIES: dict[type, str] = {}


def command(lane: int, *, needs_room: bool = False, entries: str = "") -> Callable[[C], C]:
    """Declares a class as a command."""

    def declare(kind: C) -> C:
        LANES[kind] = lane
        if needs_room:
            NEED_ROOM.add(kind)
        if entries:
            ENTRIES[kind] = entries
        return kind

    return declare
