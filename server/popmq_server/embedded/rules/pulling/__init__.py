"""Reading by queue and offset, without leases."""
