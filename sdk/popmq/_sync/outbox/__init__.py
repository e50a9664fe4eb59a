"""The outbox: messages beside the statements of a database transaction."""
