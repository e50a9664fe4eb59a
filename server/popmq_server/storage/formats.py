"""The formats of the store: what each of them changed, and how a later one may change something.

The number of the newest one stands in `meta`. A store of a number that is not here is refused, by name; one of an
older number is read as it is, and gets the newest number when its state was read (`Store.adopt`): a start that fails on
an older store leaves it to the release that wrote it.

A new number is needed when an older release would misread what a newer one writes. It is **not** needed for

    a new field of a JSON row           rows.py keeps fields that it does not know, and fills in what a row lacks
    a new counter behind the others     a missing one is zero (state.py:_numbers)
    a new database that an older release may leave out without being wrong

What stands in large numbers is never rewritten when a store is opened, so each value whose layout may change says which
layout it has, and a later release reads the old ones beside its own:

    record      the first byte of its length (message.py:record)      0: earlier formats wrote a length below 2^24 there
    history     its first byte (history_rows.py:add)                   1; 0 in formats 1 and 2: a group id below 2^24
    CheckPoint  its first byte (checkpoint.py:encode)                  1; 2 in FIFO topics, since format 2

To change a layout: give the value a new version, read the old ones as well, add a row to FORMATS, and keep a store of
the release before in tests/stores (`python -m tests.stores.make`).
"""

from typing import NamedTuple

from popmq_server.errors import StartError


class Format(NamedTuple):
    """One number, and what a release of the format before it would misread."""

    number: int
    changed: str


FORMATS = (
    Format(1, "the first: topics, groups, leases, retries, dead letters, owners, history"),
    Format(2, "FIFO, delayed and half messages, filters, pull, look-ups by key, sweeps, lite topics; CheckPoint 2"),
    Format(3, "history: rows of neighbours in one value (history_rows.py)"),
)
#: What this release writes.
FORMAT = FORMATS[-1].number


def readable(folder: str, number: int) -> int:
    """The number of a store, if this release reads it. Raises StartError."""
    if number not in {known.number for known in FORMATS}:
        raise StartError(
            f"{folder} has store format {number}, this release reads formats {FORMATS[0].number} to {FORMAT}: "
            "start it with the release that wrote it, or a newer one"
        )
    return number
