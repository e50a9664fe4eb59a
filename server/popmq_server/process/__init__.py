"""The process around an engine: serves it, reads signals, restarts what ended."""
