"""Commands on the whole store."""

from typing import NamedTuple

from popmq_server.contract.capabilities import MAX_SIZE
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.operations import LANE_ACK, Command
from popmq_server.contract.rights import ADMIN, Needs


class SetMaxSize(Command[None], Listed["SetMaxSize"], lane=LANE_ACK, capability=MAX_SIZE):
    """Sets a new limit of the data file, in bytes; runs between two transactions (core.py)."""

    size: int

    def needs(self) -> Needs:
        return ADMIN


class Piece(NamedTuple):
    """A piece of a backup.

    The first piece has `about_bytes`, the expected file size; the last has `length` and `sha256`, but no data.
    """

    data: bytes = b""
    about_bytes: int = 0
    length: int = 0
    sha256: bytes = b""
