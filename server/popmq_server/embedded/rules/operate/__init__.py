"""Operator commands (redrive, purge, resume) and the expiry of idle subscriptions."""
