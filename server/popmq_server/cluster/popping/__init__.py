"""Deliveries: pops, what they wait for, acks and changes of leases, and what becomes a dead letter."""
