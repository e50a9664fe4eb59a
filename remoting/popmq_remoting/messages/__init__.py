"""Messages as brokers store and take them: records, properties, batches, compressed bodies, ids and recall handles."""
