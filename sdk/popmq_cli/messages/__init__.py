"""Commands about messages: send, pop, settle, look, move."""
