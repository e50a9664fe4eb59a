"""A base for commands that only a test knows: they are in no list of the contract."""

from popmq_server.contract.operations import Declared
from popmq_server.contract.rights import ADMIN, Needs


class Unlisted(Declared):
    """Stands in for Listed."""

    def _is_listed(self) -> None: ...

    def needs(self) -> Needs:
        return ADMIN
