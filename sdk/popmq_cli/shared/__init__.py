"""Shared by the commands: options, connection, contexts, times, completion, output, exit codes."""
