"""A wing: what operators do (redrive, purge, resume), and the expiry of idle subscriptions."""
