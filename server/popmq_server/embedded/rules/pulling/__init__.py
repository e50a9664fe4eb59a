"""A wing: reading by queue and offset, without leases."""
