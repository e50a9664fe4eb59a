"""What a comparison raises that does not hold, and the refusal of a start on a store in which one does not hold."""

from typing import NoReturn

from popmq_server.embedded.invariants.listed import BY_NAME
from popmq_server.errors import Refused, StartError

#: Characters of one value in a message.
_VALUE_MAX = 100

#: (table, key) of the row of the store in which the broken invariant was read.
Row = tuple[str, bytes]


class BrokenInvariant(Exception):
    """An invariant does not hold. A command gets INTERNAL, a job is postponed, a start is refused."""

    def __init__(self, name: str, row: Row | None, values: dict[str, object]) -> None:
        self.invariant = BY_NAME[name]
        self.row = row
        self.values = values
        super().__init__(f"the invariant {name} is broken: {self.invariant.sentence} {self.found}")

    @property
    def found(self) -> str:
        """The values that were found, and the row."""
        texts = [f"{name} {value!r}"[:_VALUE_MAX] for name, value in self.values.items()]
        if self.row is not None:
            texts.append(f"row {self.row[1].hex()} of table {self.row[0]!r}")
        return f"(found: {', '.join(texts)})"

    def refusal(self) -> Refused:
        """What a caller gets."""
        name, sentence, repair = self.invariant
        return Refused("INTERNAL", f"the invariant {name} is broken: {sentence} Nothing was changed", action=repair)


class BrokenStore(StartError):
    """A start is refused, since the store breaks an invariant."""

    def __init__(self, broken: BrokenInvariant) -> None:
        super().__init__(f"{broken}; start on a backup, or mend the store: `popmq check --repair`")
        self.broken = broken


def broken(name: str, row: Row | None = None, /, **values: object) -> NoReturn:
    """Raises BrokenInvariant. `values`: what was found, for the log; they name no content of messages."""
    raise BrokenInvariant(name, row, values)
