"""The state in memory, and the transaction that changes it together with the store."""
