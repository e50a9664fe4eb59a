"""The part of the embedded engine on the event loop: `Broker`, long polls, sessions, the rebalance."""
