"""Access keys, the check of each command against them, the TLS certificate."""
