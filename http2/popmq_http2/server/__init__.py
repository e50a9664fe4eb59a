"""The server's side: ports and handlers, connections, their streams and calls, and the writer of answers."""
