"""Popmq.v1: turns requests into commands and answers into responses."""
