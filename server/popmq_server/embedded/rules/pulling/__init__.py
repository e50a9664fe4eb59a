"""A feature: reading by queue and offset, without leases."""
