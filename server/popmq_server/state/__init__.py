"""What the broker knows in memory, and the transaction that changes it with the store."""
