"""Texts that clients hand back later: handles, transaction ids, recall handles. They hold all that a gateway needs."""
