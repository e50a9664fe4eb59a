"""Transactions: how half messages end, and the producers that brokers ask about them."""
