"""Lite topics: many small topics under one parent."""
