"""Checks the clients' records, and the broker afterwards."""
