"""The limit of the data file: what `--max-size` names, or what an operator set later while the broker ran.

The last decision holds. A size that was set stands in `meta`, beside what `--max-size` named at that time; it holds for
later starts until `--max-size` names something else. So a service whose unit file names the old size keeps the new one
over a restart, and whoever edits the unit file gets what it says.
"""

import json
from typing import NamedTuple

#: The row of `meta`. A release that does not know it leaves it alone and goes by its flag.
ROW = b"max_size"


class SetSize(NamedTuple):
    """A size that was set while a broker ran, in bytes."""

    size: int
    named: int  # by --max-size at that time; 0 = the flag was left out

    def holds(self, named: int) -> bool:
        """Whether it still holds for a start whose `--max-size` names this; 0 = the flag is left out."""
        return named in (0, self.named)

    def packed(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def read(raw: bytes) -> SetSize:
    """Raises ValueError, KeyError or TypeError for what is no such row."""
    fields = json.loads(raw)
    return SetSize(int(fields["size"]), int(fields["named"]))
