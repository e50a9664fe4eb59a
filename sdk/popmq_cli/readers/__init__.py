"""Commands about topics, schedules and readers: groups, offsets, owners, leases, clients."""
