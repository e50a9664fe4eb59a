"""Commands on delayed messages, transactions and schedules.

See delay.py, end_transaction.py, check_back.py, schedules.py.

Recall handles and transaction ids are the texts that Send returned; the engine refuses those that it did not make.
"""

from typing import NamedTuple

from popmq_server.contract.commands.lanes import LANE_ACK, LANE_SEND, command
from popmq_server.contract.commands.messages import NewMessage, Place
from popmq_server.errors import Refused


@command(LANE_ACK)
class Recall(NamedTuple):
    """→ the message id. Removes a delayed message before it is due: it will never be delivered."""

    topic: str
    handle: str


class End(NamedTuple):
    """One entry of EndTransaction: commit, or roll back if `commit` is false."""

    transaction: str
    commit: bool


class Ended(NamedTuple):
    """The outcome of an entry: the message, and its place after a commit."""

    message_id: str
    place: Place


@command(LANE_ACK, entries="ends")
class EndTransaction(NamedTuple):
    """→ list of Ended or Refused, one for each entry, in order; an invalid entry is replaced by its Refused."""

    ends: tuple[End | Refused, ...]


class Check(NamedTuple):
    """A check back: asks a producer how the transaction of this half message ended.

    `number`: the check's number, from 1. `data`: popmq.v1.Message. The writer returns checks in `Timed.checks`.
    """

    transaction: str
    topic: str
    number: int
    data: bytes


@command(LANE_ACK, entries="checks")
class CountChecks(NamedTuple):
    """→ None. Counts checks that were written to a live stream, as (transaction, number of the check)."""

    checks: tuple[tuple[str, int], ...]


@command(LANE_ACK, entries="topics")
class Listen(NamedTuple):
    """→ None. `topics`: all topics for whose half messages a live producer can answer now.

    `joining`: the topics that a new producer has named; Refused if one of them takes no half messages.
    """

    topics: frozenset[str]
    joining: tuple[str, ...] = ()


@command(LANE_ACK, needs_room=True)
class CreateSchedule(NamedTuple):
    """→ (Schedule, whether it existed). Sends `message` to `topic` at each occurrence of `cron` in the zone.

    `zone`: a name of the IANA database. `missed`: SKIP, ONCE or ALL, for occurrences that could not be sent in time.
    """

    name: str
    cron: str
    zone: str
    topic: str
    missed: str
    message: NewMessage

    @property
    def bytes(self) -> int:
        """Its message, for what may wait for the writer."""
        return len(self.message.data)


@command(LANE_ACK)
class DeleteSchedule(NamedTuple):
    """→ None. Messages that it has sent stay."""

    name: str


@command(LANE_ACK)
class PauseSchedule(NamedTuple):
    """→ Schedule. Occurrences while it is paused are not missed: they are left out."""

    name: str
    paused: bool


@command(LANE_SEND, needs_room=True)
class RunSchedule(NamedTuple):
    """→ the message id. Sends the message now, beside its occurrences; also while it is paused."""

    name: str
