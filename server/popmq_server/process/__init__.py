"""The process: starts and stops the ports around an engine, and reads signals."""
