"""Send: plain and delayed messages, transactions, unique ids, size limits."""
