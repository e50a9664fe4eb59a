"""The limits of each fair key: leased messages, and messages a second.

    rate    ──────▶ ┌────────────────┐
                    │ ≤ one second   │ ──▶ a Pop takes a message of the key     in memory: full after a restart
                    └────────────────┘
    leases  key_leases (state/leases.py) counts the leased messages of each key; messages in backoff are not leased

The rate is kept as the time at which a bucket would be full again. A key without an entry has a full one.
"""

from popmq_server.embedded.rules.delivery.fair.keys import number_of, stored_hash
from popmq_server.embedded.state.state import State
from popmq_server.values.ids import GroupTopic
from popmq_server.values.records import FairKeys

#: Verdicts of `may_go` beside a time: now; when a lease of the key ends.
NOW, AFTER_A_LEASE = 0, -1
#: Microseconds of a millisecond, and of what a full bucket holds.
_US, _BURST_US = 1000, 1_000_000
#: Entries of full buckets are dropped when there are twice as many entries as there were left the last time.
_FULL_AT = 1000


class Limits:
    """The limits of a group's fair keys, and what their rates permit."""

    def __init__(self, fair: FairKeys, where: GroupTopic) -> None:
        self._where = where
        self._all = fair.in_flight_max, fair.messages_per_s
        self._named = {number_of(one.key.encode()): (one.in_flight_max, one.messages_per_s) for one in fair.exceptions}
        #: Whether CheckPoints have to store the keys of their members; whether any key has a limit.
        self.of_leases = fair.limits_leases
        self.any = any(self._all) or bool(self._named)
        self._full_us: dict[int, int] = {}
        self._drop_at = _FULL_AT

    def of(self, number: int) -> tuple[int, int]:
        """(leased messages, messages a second) of a key; 0 = no limit."""
        return self._named.get(number, self._all)

    def leased(self, state: State, number: int) -> int:
        """The leased messages of a key. Counted since its group has a limit of them."""
        return state.key_leases.get((*self._where, stored_hash(number)), 0)

    def may_go(self, state: State, number: int, taken: int, now_ms: int) -> int:
        """When one more message of a key may be taken, after `taken` by the same plan: NOW, AFTER_A_LEASE, or ms."""
        leases_max, rate = self.of(number)
        if leases_max and self.leased(state, number) + taken >= leases_max:
            return AFTER_A_LEASE
        if not rate:
            return NOW
        early_us = self._after(number, rate, taken + 1, now_ms) - _BURST_US
        return NOW if early_us <= now_ms * _US else -(-early_us // _US)

    def count(self, number: int, taken: int, now_ms: int) -> None:
        """Takes units of a key's rate."""
        rate = self.of(number)[1]
        if rate:
            self._full_us[number] = self._after(number, rate, taken, now_ms)
        if len(self._full_us) >= self._drop_at:
            self._full_us = {key: full for key, full in self._full_us.items() if full > now_ms * _US}
            self._drop_at = max(_FULL_AT, 2 * len(self._full_us))

    def _after(self, number: int, rate: int, taken: int, now_ms: int) -> int:
        """When the bucket would be full again after `taken` messages, in µs."""
        return max(self._full_us.get(number, 0), now_ms * _US) + taken * _BURST_US // rate
