"""Popmq.v1: requests become commands, answers become responses."""
