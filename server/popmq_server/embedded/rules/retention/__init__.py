"""A feature: drops messages that are finished or too old."""
