"""The connection of an AsyncClient, and the one place through which all its calls pass."""
