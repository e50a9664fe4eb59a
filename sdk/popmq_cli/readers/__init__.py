"""Commands about topics, schedules and who reads: groups, offsets, owners, leases, clients."""
