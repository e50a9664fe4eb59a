"""The parts of popmq.worker: what a function takes, how it is called, and the loop that calls it."""
