"""Which CheckPoints live with a client, in the order of their numbers (sorted_numbers.py), for session_lease.py."""

from typing import TYPE_CHECKING

from popmq_server.storage import sorted_numbers

if TYPE_CHECKING:
    from popmq_server.state.state import State

#: Tuples of at most 1,024 numbers are copied in a microsecond; a client with a million leases has a thousand of them.
SPAN_BITS = 10


def add(state: "State", client: str, ck_id: int) -> None:
    sorted_numbers.add(state.session_leases, state.session_spans, (client,), ck_id, SPAN_BITS)


def remove(state: "State", client: str, ck_id: int) -> None:
    sorted_numbers.remove(state.session_leases, state.session_spans, (client,), ck_id, SPAN_BITS)


def load(state: "State", found: dict[str, list[int]]) -> None:
    """At start."""
    by_key = {(client,): ck_ids for client, ck_ids in found.items()}
    sorted_numbers.load(state.session_leases, state.session_spans, by_key, SPAN_BITS)


def behind(state: "State", client: str, ck_id: int, most: int) -> list[int]:
    """At most so many CheckPoints of a client behind one of them."""
    return sorted_numbers.behind(state.session_leases, state.session_spans, (client,), ck_id, SPAN_BITS, most)
