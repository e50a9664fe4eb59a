"""Load programs in Python: for PopMQ's own SDK, and for durable queues that are Python libraries."""
