"""Commands on the whole store."""

from typing import NamedTuple

from popmq_server.contract.commands.lanes import LANE_ACK, command


@command(LANE_ACK)
class SetMaxSize(NamedTuple):
    """→ None. Sets a new limit of the data file, in bytes; runs between two transactions (core.py)."""

    size: int


class Piece(NamedTuple):
    """A piece of a backup.

    The first piece has `about_bytes`, the expected file size; the last has `length` and `sha256`, but no data.
    """

    data: bytes = b""
    about_bytes: int = 0
    length: int = 0
    sha256: bytes = b""
