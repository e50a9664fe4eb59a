"""Commands on lite topics: see lite_sync.py; a Pop of them is a Pop with `lite`."""

from typing import NamedTuple

from popmq_server.contract.capabilities import LITE
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.operations import LANE_POP, Command
from popmq_server.contract.rights import Needs, receives


class LiteSynced(NamedTuple):
    """The client's number of names; (client, lite topic) pairs of clients that have lost, or do not get, that name.

    Only in groups with exclusive lite topics: the latest subscriber has the name, the others are to be notified.
    """

    names: int
    evicted: tuple[tuple[str, str], ...] = ()


class SyncLite(Command[LiteSynced], Listed["SyncLite"], lane=LANE_POP, entries="names", capability=LITE):
    """Sets the lite topics of `topic` that a client of `group` reads for the next 75 s or so.

    `action`: ADD, REMOVE, REPLACE (all), DROP (the client has left). `start`: where the group begins in the added ones,
    (LAST, MIN, MAX, OFFSET, TAIL or TIMESTAMP, number); None or LAST: where it is, or at its own start.
    """

    topic: str
    group: str
    client: str
    action: str
    names: tuple[str, ...] = ()
    start: tuple[str, int] | None = None

    def needs(self) -> Needs:
        return receives(self.topic, self.group)
