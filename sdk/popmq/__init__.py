"""PopMQ: the thin client."""

__version__ = "0.1.0"
