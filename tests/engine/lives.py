"""Calls Why as a caller does: the trace in pieces, then the life of each message found."""

from dataclasses import replace

from popmq_server.contract.commands.inspection import GroupLife, MessageLife
from popmq_server.embedded import operations
from tests.engine.rig import Rig


def traced(rig: Rig, message_id: str, topic: str = "", group: str = "") -> list[operations.Spotted]:
    found: list[operations.Spotted] = []
    at: tuple[int, bytes] | None = (0, b"")
    while at is not None:
        some: operations.Traced = rig.do(operations.Trace(message_id, topic, group, at))
        found, at = found + some.found, some.at
    return found


def why(rig: Rig, message_id: str, topic: str = "", group: str = "") -> list[MessageLife]:
    command = operations.WhyPiece(message_id, tuple(traced(rig, message_id, topic, group)), topic, group)
    while isinstance(lives := rig.do(command), operations.HolderSearch):
        command = replace(command, walk=lives)
    return list[MessageLife](lives)


def life(rig: Rig, message_id: str = "a", group: str = "g", topic: str = "") -> GroupLife:
    """The life of the only message with this id, for one group."""
    (one,) = why(rig, message_id, topic)
    (found,) = [each for each in one.groups if each.group == group]
    return found


def state(rig: Rig, message_id: str = "a", group: str = "g") -> str:
    return life(rig, message_id, group).state


def story(rig: Rig, message_id: str = "a", group: str = "g") -> list[str]:
    """The names of its events."""
    return [event.what for event in life(rig, message_id, group).events]


def has(rig: Rig, *parts: str, message_id: str = "a", group: str = "g") -> None:
    """Fails unless the explanation contains all of these texts."""
    text = life(rig, message_id, group).explanation
    assert all(part in text for part in parts), text
