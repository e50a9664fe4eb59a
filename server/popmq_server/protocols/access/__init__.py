"""Access keys, the permission check of each command, the TLS certificate."""
