"""The embedded broker, an engine behind the seam: its part on the event loop."""
