"""How a transaction of a database ended, as far as the database can tell; and which module asks which database.

A half message of an outbox has a property with its place: the database and the transaction, as one text. Any process
that reaches the database can read it, and ask how the transaction ended.

Each database has three functions, which yield SQL and get rows. None has parameters of SQL, since the libraries write
them differently: what is inserted into SQL was made here, or has matched a pattern of digits.

    prepare()      on a connection of the outbox, in autocommit, before its first box
    here()         in the user's transaction: where is this? ──▶ the place
    ended(places)  on a connection of the outbox: how did they end? ──▶ a Verdict for each
"""

import re
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from popmq.transaction import Resolution

#: The property of a half message that has its place.
PROPERTY = "popmq-outbox"

T = TypeVar("T")
Rows = Sequence[tuple[Any, ...]]
#: Yields SQL, gets the rows of each statement, or the library's error; returns its result.
Steps = Generator[str, Rows, T]


class Verdict(NamedTuple):
    """What a database says about a transaction. `resolution` None: not known, for this `reason`.

    `is_open`: the transaction has not ended, so that the next question may have another answer.
    """

    resolution: Resolution | None
    reason: str
    is_open: bool = False


COMMITTED = Verdict("commit", "the transaction committed")
ROLLED_BACK = Verdict("rollback", "the transaction rolled back")
OPEN = Verdict(None, "the transaction has not ended yet", is_open=True)


def unknown(reason: str) -> Verdict:
    """The database cannot tell."""
    return Verdict(None, reason)


ELSEWHERE = unknown("the transaction belongs to another database than the one that was asked")


class Kind(Protocol):
    """A module that knows one kind of database."""

    #: Places as this module writes them. Nothing else gets into SQL.
    PLACE: re.Pattern[str]

    def prepare(self) -> Steps[None]:
        """Makes what `here` needs."""

    def here(self) -> Steps[str]:
        """The place of the transaction in which this runs."""

    def ended(self, places: Sequence[Sequence[str]]) -> Steps[list[Verdict]]:
        """How they ended; each is the groups of PLACE."""

    def delete(self, places: Sequence[str]) -> Steps[None]:
        """Deletes the markers of messages that have ended."""


def ended(kind: Kind, texts: Sequence[str]) -> Steps[list[Verdict]]:
    """The verdict for each place, in order. One that is not of this kind of database is ELSEWHERE."""
    found = [kind.PLACE.fullmatch(text) for text in texts]
    verdicts = iter((yield from kind.ended([match.groups() for match in found if match])))
    return [next(verdicts) if match else ELSEWHERE for match in found]
