"""Orders of operators: redrive, purge, resume; expiry of idle subscriptions."""
