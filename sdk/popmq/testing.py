"""The embedded broker for tests."""
