"""The core: pop, ack, revive, retry, dead letters; FIFO; owners; the history of leases."""
