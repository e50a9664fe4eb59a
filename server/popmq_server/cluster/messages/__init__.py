"""Messages both ways: a popmq.v1.Message, and RocketMQ's body, properties and flags."""
