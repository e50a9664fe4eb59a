"""The parts of `make bench`: what each measures."""
