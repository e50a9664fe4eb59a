"""The answer to a Pop inside the embedded engine; its clients get a Popped, with a handle for each row."""

from typing import NamedTuple

from popmq_server.errors import Refused
from popmq_server.values.handles import make_handles

#: (message bytes, stored ms, queue, offset, attempt, member of the CheckPoint).
LeasedRow = tuple[bytes, int, int, int, int, int]


class Leased(NamedTuple):
    """The answer to a Pop; empty `rows` lease nothing.

    `rest`: messages left in the visited queues. `replay`: the answer to a known attempt id or token.
    `sealed`: with a token (messages sealed at first, end, stolen, lost). `again`: nothing was found yet, but the search
    is not complete: ask again at once. `refusal`: why nothing was leased although there are messages, once the Pop
    waits no longer. `quota_ms`: when the topic's quota permits the next message. `type`: the topic's. `parts`: for lite
    topics, each with its own CheckPoint and rows; `rows` are then those of all parts. `named`: an empty answer of a Pop
    that read certain queues, not all. `look_ms`: when the rate of a fair key permits its next message; 0 = no key waits
    for that. `behind`: messages are left to read ahead for fair keys (ReadAhead).
    """

    rows: list[LeasedRow]
    ck_id: int
    nonce: int
    popped_ms: int
    due_ms: int
    rest: int
    replay: bool = False
    sealed: tuple[int, bool, int, int] | None = None
    again: bool = False
    refusal: Refused | None = None
    quota_ms: int = 0
    type: str = "NORMAL"
    parts: tuple["Leased", ...] = ()
    named: bool = False
    look_ms: int = 0
    behind: bool = False

    @property
    def leases(self) -> tuple["Leased", ...]:
        """The parts of the answer, one for each CheckPoint; handles are made from these."""
        return self.parts or (self,)

    @property
    def texts(self) -> list[bytes]:
        """The texts of the handles, as clients send them back."""
        made: list[bytes] = []
        for leased in self.leases:
            made += make_handles(leased.ck_id, [member for _, _, _, _, _, member in leased.rows], leased.nonce)
        return made
