"""What can be asked of delayed messages and transactions: see delay.py, end_transaction.py, check_back.py."""

from typing import NamedTuple

from popmq_server.commands.messages import Place
from popmq_server.errors import Refused
from popmq_server.model.handles import RecallHandle, TransactionId


class Recall(NamedTuple):
    """→ the message id. Takes a delayed message back: it will never be delivered."""

    topic: str
    handle: RecallHandle


class End(NamedTuple):
    """One entry of EndTransaction: `commit`, or roll back."""

    transaction: TransactionId
    commit: bool


class Ended(NamedTuple):
    """How an entry ended: the message, and after a commit its place."""

    message_id: str
    place: Place


class EndTransaction(NamedTuple):
    """→ list of Ended or Refused, one for each entry, in order; an id that could not be read is its Refused."""

    ends: tuple[End | Refused, ...]


class Check(NamedTuple):
    """A question for a producer: what became of this half message?

    `number`: this check's, from 1. `data`: popmq.v1.Message. Handed out by the writer (core.Committed.checks).
    """

    transaction: TransactionId
    topic: str
    number: int
    data: bytes


class CountChecks(NamedTuple):
    """→ None. These checks were handed to a live producer: (transaction, number of the check) each."""

    checks: tuple[tuple[TransactionId, int], ...]


class Listen(NamedTuple):
    """→ None. `topics`: all names of topics for whose half messages a live producer can answer now.

    `joining`: the names that a new producer has given; Refused when one of them has no half messages.
    """

    topics: frozenset[str]
    joining: tuple[str, ...] = ()
