"""Commands on the whole store."""

from typing import NamedTuple


class SetMaxSize(NamedTuple):
    """→ None. Sets a new limit of the data file, in bytes; runs between two transactions (core.py)."""

    size: int
