"""Consumers, those that pop and those that pull, and the background jobs that keep them going."""
