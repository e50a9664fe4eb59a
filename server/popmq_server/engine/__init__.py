"""The seam, and the embedded broker behind it: what runs on the event loop."""
