"""Commands on session leases, which last as long as their client is alive: see session_lease.py.

Both run in pieces: the answer is (leases moved, where to continue). The caller repeats them with `after` until it is 0.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from popmq_server.contract.commands.lanes import LANE_ACK, command

#: A session lease ends this long after the client was heard of last; then other clients get the message.
SESSION_LEASE_MS = 60_000
#: A listener that takes longer than this for one message counts as stuck, even if its client still makes calls.
SESSION_CAP_MS = 3 * 3_600_000
#: How often a client sends heartbeats.
HEARTBEAT_MS = 30_000
#: How long a lock of a queue lasts. Clients trust it for half of this time and renew it every third.
LOCK_MS = 60_000
#: Of a client that reads all its topics in either consume mode.
EITHER: Mapping[str, str] = MappingProxyType({})


@command(LANE_ACK)
class RenewSession(NamedTuple):
    """→ the number of leases moved; of one piece, (the number, `after` of the next piece or 0).

    The client is alive: its leases last `lease_ms` from now. `cap_ms`: no lease lasts longer than this after
    its pop, even if its client stays alive.
    """

    client: str
    lease_ms: int
    cap_ms: int
    after: int = 0


@command(LANE_ACK)
class ReleaseSession(NamedTuple):
    """→ as RenewSession. The client has ended: its leases end now."""

    client: str
    after: int = 0


class Heartbeat(NamedTuple):
    """Of a client that reads `topics` for a group. → the version of the group's assignments, 0 unless `versioned`.

    `only`: the consume mode of each topic that the client reads in one mode alone. `goodbye`: the session ends.
    """

    group: str
    client: str
    topics: frozenset[str]
    goodbye: bool = False
    versioned: bool = True
    only: Mapping[str, str] = EITHER


class Assignment(NamedTuple):
    """The queues that a client reads.

    `known` False: keep the current queues. `all`: pop without naming queues. Otherwise exactly `queues`.
    """

    known: bool
    all: bool
    queues: tuple[int, ...]
    mode: str = "POP"
