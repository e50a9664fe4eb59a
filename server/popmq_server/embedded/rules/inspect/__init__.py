"""Read-only queries: statistics, messages, leases, the state of a message."""
