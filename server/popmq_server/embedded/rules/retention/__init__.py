"""Retention: drops chunks that are finished or too old."""
