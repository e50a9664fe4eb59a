"""The connection of a Client, and the one place through which all its calls pass."""
