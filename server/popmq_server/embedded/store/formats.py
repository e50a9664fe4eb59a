"""The formats of the store: the changes in each, and how to make the next one.

`meta` has the format number of the store. A store with an unknown number is refused. A store with an older number is
read as it is, and gets the newest number once its state was read (`Store.adopt`): if the start fails, the release that
wrote the store can still open it.

A new number is needed if an older release would misread the data of a newer one. It is **not** needed for

    a new field of a JSON row           row_formats.py keeps fields that it does not know; missing ones get defaults
    a new counter after the others      a missing one is zero (row_formats.py:numbers)
    a new database that an older release may ignore without being wrong
    the snoozes in the past of a message (checkpoint.py): an older release decides nothing by it, and shows a wrong time
        of the first pop in the dead letters of messages that were snoozed

Tables with many rows are never rewritten when a store is opened. So each value whose layout may change has a layout
version, and a later release reads the old layouts as well as its own:

    record      the first byte of its length (message.py:record)      0: earlier formats wrote a length below 2^24 there
    history     its first byte (history_rows.py:add)                   1; 0 in formats 1 and 2: a group id below 2^24
    CheckPoint  its first byte (checkpoint.py:encode)                  1; 2 in FIFO topics, since format 2

To change a layout: give the value a new version, read the old ones as well, add a row to FORMATS, and keep a store of
the previous release in tests/stores (`python -m tests.stores.make`).

See docs/decisions/0001-store-format-number.md.
"""

from typing import NamedTuple

from popmq_server.embedded.store.datafile.checksums import BARE
from popmq_server.embedded.store.keys import DATABASES
from popmq_server.errors import StartError


class Format(NamedTuple):
    """A format number, and the changes that a release of the previous format would misread."""

    number: int
    changed: str


FORMATS = (
    Format(1, "the first: topics, groups, leases, retries, dead letters, owners, history"),
    Format(2, "FIFO, delayed and half messages, filters, pull, look-ups by key, sweeps, lite topics; CheckPoint 2"),
    Format(3, "history: rows of neighbours in one value (history_rows.py)"),
    Format(4, "each row has a checksum (checksums.py); only a new store has this format"),
)
#: Added to the number while changes may be in the journal only (journal/folding.py): an earlier release, which would
#: not look there, then refuses the store. A broker that stops takes it away. It is less than 256, so that a repair by
#: an earlier release refuses the store too.
JOURNALED = 1 << 7
#: The format of a new store.
FORMAT = FORMATS[-1].number
#: Since this format rows have checksums. An older store gets none, since all its rows would have to be rewritten;
#: `popmq check --repair` writes a new store.
CHECKSUMS_FROM = 4


def without_checksums(number: int) -> frozenset[str]:
    """The databases whose rows have no checksum (checksums.py), in a store of a format."""
    return BARE if number >= CHECKSUMS_FROM else frozenset(DATABASES)


def newest(number: int) -> int:
    """The newest format that a store of this one can have."""
    return FORMAT if number >= CHECKSUMS_FROM else CHECKSUMS_FROM - 1


def readable(folder: str, number: int) -> int:
    """Returns the number of a store, without JOURNALED, if this release reads it. Raises StartError."""
    number &= ~JOURNALED
    if number not in {known.number for known in FORMATS}:
        raise StartError(
            f"{folder} has store format {number}, this release reads formats {FORMATS[0].number} to {FORMAT}: "
            "start it with the release that wrote it, or a newer one"
        )
    return number
