"""What commands share: options, connection, contexts, times, completion, output, exit codes."""
