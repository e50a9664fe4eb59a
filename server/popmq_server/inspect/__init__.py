"""Questions that change nothing: numbers, messages, leases, why."""
