"""The protocol popmq.v1: turns requests into commands and answers into responses."""
