"""All ways to break an invariant: importing their modules has added them."""

from tests.engine.invariants import of_groups, of_leases, of_messages, of_owners, of_queues
from tests.engine.invariants.breaking import CASES

__all__ = ["CASES", "of_groups", "of_leases", "of_messages", "of_owners", "of_queues"]
