"""The Engine interface and the embedded broker; both run on the event loop."""
