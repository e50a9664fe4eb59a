"""Commands on delayed messages, transactions and schedules.

See delay.py, end_transaction.py, check_back.py, schedules.py.

Recall handles and transaction ids are the texts that Send returned; the engine refuses those that it did not make.
"""

from typing import NamedTuple

from popmq_server.contract.capabilities import RECALL, RESCHEDULE, SCHEDULES, TRANSACTIONS
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.commands.messages import NewMessage, Place
from popmq_server.contract.operations import LANE_ACK, LANE_SEND, Command, Query
from popmq_server.contract.rights import ADMIN, Needs, sends
from popmq_server.errors import Refused
from popmq_server.values.records import Schedule


class Recall(Command[str], Listed["Recall"], lane=LANE_ACK, capability=RECALL):
    """Removes a delayed message before it is due: it will never be delivered."""

    topic: str
    handle: str

    def needs(self) -> Needs:
        return sends(self.topic, or_admin=True)


class Rescheduled(NamedTuple):
    """`handle`: the recall handle from now on."""

    message_id: str
    handle: str
    due_ms: int


class Reschedule(Command[Rescheduled], Listed["Reschedule"], lane=LANE_ACK, capability=RESCHEDULE):
    """Moves a delayed message to a time (`due_ms`), or to `delay_ms` from now: one of them is 0."""

    topic: str
    handle: str
    due_ms: int = 0
    delay_ms: int = 0

    def needs(self) -> Needs:
        return sends(self.topic, or_admin=True)


class End(NamedTuple):
    """One entry of EndTransaction: commit, or roll back if `commit` is false."""

    transaction: str
    commit: bool


class Ended(NamedTuple):
    """The outcome of an entry: the message, and its place after a commit."""

    message_id: str
    place: Place


class EndTransaction(
    Command[list[Ended | Refused]], Listed["EndTransaction"], lane=LANE_ACK, entries="ends", capability=TRANSACTIONS
):
    """Commits or rolls back; the answer has one for each entry, in order. An invalid one is replaced by its Refused.

    The caller also needs send on the topics of its transactions: authorization.py.
    """

    ends: tuple[End | Refused, ...]

    def needs(self) -> Needs:
        return sends("", or_admin=True)

    def takes_room(self) -> bool:
        """A rollback frees room."""
        return any(isinstance(end, End) and end.commit for end in self.ends)


class TopicsOf(Query[frozenset[str]], Listed["TopicsOf"], entries="transactions", capability=TRANSACTIONS):
    """The topics of these transactions, for a check of rights. Ids that the engine did not make have no topic."""

    transactions: tuple[str, ...]

    def needs(self) -> Needs:
        return ADMIN


class Check(NamedTuple):
    """A check back: asks a producer how the transaction of this half message ended.

    `number`: the check's number, from 1. `data`: popmq.v1.Message. The writer returns checks in `Timed.checks`.
    """

    transaction: str
    topic: str
    number: int
    data: bytes


class CreatedSchedule(NamedTuple):
    """`existed`: the schedule was there before, with these settings."""

    schedule: Schedule
    existed: bool


class CreateSchedule(
    Command[CreatedSchedule], Listed["CreateSchedule"], lane=LANE_ACK, needs_room=True, capability=SCHEDULES
):
    """Sends `message` to `topic` at each occurrence of `cron` in the zone.

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

    def needs(self) -> Needs:
        return ADMIN


class DeleteSchedule(Command[None], Listed["DeleteSchedule"], lane=LANE_ACK, capability=SCHEDULES):
    """Messages that it has sent stay."""

    name: str

    def needs(self) -> Needs:
        return ADMIN


class PauseSchedule(Command[Schedule], Listed["PauseSchedule"], lane=LANE_ACK, capability=SCHEDULES):
    """Occurrences while it is paused are not missed: they are left out."""

    name: str
    paused: bool

    def needs(self) -> Needs:
        return ADMIN


class RunSchedule(Command[str], Listed["RunSchedule"], lane=LANE_SEND, needs_room=True, capability=SCHEDULES):
    """Sends the message now, beside its occurrences; also while it is paused."""

    name: str

    def needs(self) -> Needs:
        return ADMIN
