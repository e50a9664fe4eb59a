"""What can be asked about lite topics: see lite_sync.py; a Pop of them is a Pop with `lite`."""

from typing import NamedTuple


class SyncLite(NamedTuple):
    """→ LiteSynced. The lite topics of `topic` that a client of `group` reads from now on, for some 75 s.

    `action`: ADD, REMOVE, REPLACE (all), DROP (the client has left). `start`: where the group begins in those that are
    added, (LAST, MIN, MAX, OFFSET, TAIL or TIMESTAMP, number); None or LAST: where it is, or at its own start.
    """

    topic: str
    group: str
    client: str
    action: str
    names: tuple[str, ...] = ()
    start: tuple[str, int] | None = None


class LiteSynced(NamedTuple):
    """How many names the client has now; (client, lite topic) pairs that are not that client's (any more).

    Only in groups whose lite topics are exclusive: the latest subscriber has them, the others are to be told.
    """

    names: int
    evicted: tuple[tuple[str, str], ...] = ()
