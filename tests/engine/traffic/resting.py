"""Stores with many resting leases, for tests that they do not slow an operation."""

from popmq_server.contract import commands as ask
from tests.engine.rig import HOUR, Rig, numbered, sending

#: Commands in one commit batch.
COMMIT = 500


def leases(rig: Rig, count: int, topic: str = "rest", group: str = "rest", attempts: bool = True) -> Rig:
    """`count` messages of a topic of their own, each under a lease of its own for hours."""
    rig.topic(topic)
    rig.group(group, invisible_ms=10 * HOUR, in_flight_max=1_000_000)
    for start in range(0, count, COMMIT):
        names = range(start, min(count, start + COMMIT))
        rig.run(sending(*numbered(f"{start}.", len(names)), topic=topic))
        rig.run(*(ask.Pop(topic, group, (), 1, client_id="c", attempt_id=f"{n}" if attempts else "") for n in names))
    return rig
