"""The core: send, placing in queues; delayed messages, transactions, batches of sinks, unique ids."""
