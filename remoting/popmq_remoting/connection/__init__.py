"""One server of a cluster: a connection for many calls at once, connected when it is needed, with heartbeats."""
