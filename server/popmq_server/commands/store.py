"""What can be asked about the store as a whole."""

from typing import NamedTuple


class SetMaxSize(NamedTuple):
    """→ None. Another limit of the data file, in bytes; it runs between two transactions (core.py)."""

    size: int
