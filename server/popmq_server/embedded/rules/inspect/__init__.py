"""A wing: queries that change nothing (numbers, messages, leases, why)."""
