"""Clients of groups as brokers know them: sessions, member connections, assignments of queues, and their locks."""
