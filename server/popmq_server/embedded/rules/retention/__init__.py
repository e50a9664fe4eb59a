"""A wing: drops messages that are finished or too old."""
