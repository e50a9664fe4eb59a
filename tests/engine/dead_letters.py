"""Dead letters for tests: makes some, and redrives them in pieces, as a caller does."""

from dataclasses import replace
from typing import Any

from popmq_server.embedded import operations
from tests.engine.rig import Rig

DEAD = "%DLQ%g"


def piece(rig: Rig, **asked: Any) -> operations.RedrivenPiece:
    command = operations.RedrivePiece(**{"group": "g", **asked})
    done: operations.RedrivenPiece = rig.do(command)
    while done.walk is not None:
        done = rig.do(replace(command, walk=done.walk))
    return done


def all_again(rig: Rig, **asked: Any) -> list[str]:
    """Redrives all dead letters in pieces, as a caller does. Returns the error codes of those that failed."""
    failures, at, stop = [], 0, 0
    while True:
        done = piece(rig, start=at, stop=stop, **asked)
        failures += [failure.why.code for failure in done.failures]
        at, stop = done.next, done.stop
        if at >= stop:
            return failures


def died(rig: Rig, *texts: str, reason: str = "poison", **sent: Any) -> None:
    """Sends these messages and rejects them, so that they are dead letters."""
    rig.send(*texts, **sent)
    rig.reject(rig.pop(len(texts), **sent), reason=reason)


def offsets(rig: Rig) -> list[int]:
    return [row[3] for row in rig.browse(DEAD).rows]


def counted(rig: Rig, group: str = "g", topic: str = "t") -> tuple[int, int]:
    """(messages in the retry topic, dead letters) of the group."""
    numbers = rig.numbers(group, topic)
    return numbers.retry, numbers.dead
