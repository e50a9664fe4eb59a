"""A feature: queries that change nothing (numbers, messages, leases, why)."""
