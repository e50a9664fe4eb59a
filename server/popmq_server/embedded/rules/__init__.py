"""The rules of the broker: pure functions of a transaction and a command. Send, pop, lease, revive and log are its middle; the rest are wings."""
