"""The effect of each command on the state. The broker: sending, delivery, topics; its wings: the other packages."""
