"""What can be asked about leases that live with their client: see session_lease.py.

Both go in pieces: the answer is (leases moved, where to go on). The caller asks again with `after` until that is 0.
"""

from typing import NamedTuple


class RenewSession(NamedTuple):
    """→ (leases moved, `after` of the next piece or 0). The client was heard of: its leases last `lease_ms` from now.

    `cap_ms`: no lease lasts longer than so much after its pop, however lively its client is.
    """

    client: str
    lease_ms: int
    cap_ms: int
    after: int = 0


class ReleaseSession(NamedTuple):
    """→ (leases moved, `after` of the next piece or 0). The client has ended: its leases end now."""

    client: str
    after: int = 0
