"""The sinks: rows of a query become messages, at least once or exactly once."""
