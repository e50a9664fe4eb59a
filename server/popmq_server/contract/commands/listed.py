"""The mark of a class of the contract: it is a member of EveryOperation.

It looks up at the list of its own package, which has to name each class that bears it; a type checker compares the two.
"""

from typing import TYPE_CHECKING, Generic, TypeVar

from popmq_server.contract.operations import Declared

if TYPE_CHECKING:
    from popmq_server.contract.commands import EveryOperation

O = TypeVar("O", bound="EveryOperation")  # noqa: E741 - an operation


class Listed(Declared, Generic[O]):
    """Says that a class is a member of EveryOperation, with its own name: `Listed["Ack"]`."""

    def _is_listed(self) -> None: ...
