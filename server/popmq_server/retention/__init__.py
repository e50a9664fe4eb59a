"""Dropping what is finished or too old."""
