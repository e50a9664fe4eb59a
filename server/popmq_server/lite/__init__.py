"""Lite topics: many small topics below one parent."""
