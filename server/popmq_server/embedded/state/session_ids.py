"""The CheckPoints bound to a client's session, in the order of their ids (sorted_numbers.py), for session_lease.py."""

from popmq_server.embedded.state.all_tables import AllTables
from popmq_server.embedded.store import sorted_numbers

#: Copying a tuple of at most 1,024 numbers takes a microsecond; a client with a million leases has a thousand tuples.
SPAN_BITS = 10


def add(state: AllTables, client: str, ck_id: int) -> None:
    sorted_numbers.add(state.session_leases, state.session_spans, (client,), ck_id, SPAN_BITS)


def remove(state: AllTables, client: str, ck_id: int) -> None:
    sorted_numbers.remove(state.session_leases, state.session_spans, (client,), ck_id, SPAN_BITS)


def load(state: AllTables, by_client: dict[str, list[int]]) -> None:
    """At start: loads the tables from the CheckPoint ids of each client."""
    by_key = {(client,): ck_ids for client, ck_ids in by_client.items()}
    sorted_numbers.load(state.session_leases, state.session_spans, by_key, SPAN_BITS)


def after(state: AllTables, client: str, ck_id: int, most: int) -> list[int]:
    """At most `most` CheckPoint ids of a client after `ck_id`."""
    return sorted_numbers.after(state.session_leases, state.session_spans, (client,), ck_id, SPAN_BITS, most)
