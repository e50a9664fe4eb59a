"""Numbers of topics, groups and disks: counted by the brokers, and remembered, since a list asks for thousands."""
