"""Pop, ack, revive, retry, dead letters; FIFO; owners; lease history."""
