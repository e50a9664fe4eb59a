"""Send, delayed messages, transactions, unique ids, limits of size."""
