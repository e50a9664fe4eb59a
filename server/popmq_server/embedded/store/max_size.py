"""The limit of the data file: the value of `--max-size`, or a size that an operator set while the broker ran.

The last change holds. `meta` stores the set size with the value that `--max-size` had at that time; it holds for later
starts until `--max-size` has another value. So a service whose unit file has the old size keeps the new one after a
restart, and an edit of the unit file takes effect.
"""

import json
from typing import NamedTuple

#: The key in `meta`. A release that does not know it ignores the row and uses its flag.
ROW = b"max_size"


class SetSize(NamedTuple):
    """A size that was set while a broker ran, in bytes."""

    size: int
    named: int  # the value of --max-size at that time; 0 = the flag was omitted

    def holds(self, named: int) -> bool:
        """Whether it still holds for a start with this `--max-size`; 0 = the flag is omitted."""
        return named in (0, self.named)

    def packed(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def read(raw: bytes) -> SetSize:
    """Decodes the row. Raises ValueError, KeyError or TypeError for invalid data."""
    fields = json.loads(raw)
    return SetSize(int(fields["size"]), int(fields["named"]))
