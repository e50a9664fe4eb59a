"""What each command does to the state. The broker: sending, delivery, topics; its wings: the other packages."""
