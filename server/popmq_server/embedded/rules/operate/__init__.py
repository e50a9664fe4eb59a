"""A feature: actions of operators (redrive, purge, resume), and the expiry of idle subscriptions."""
