"""The Engine interface and the embedded broker behind it; both run on the event loop."""
