"""Messages on their way to the brokers."""
