"""Results of messages: given with an ack, kept as messages of a topic, found by group and message id."""
