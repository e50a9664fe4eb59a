"""The effect of each command on the state. Sending, delivery and topics are the core, the others are features."""
