"""A wing: lite topics, many small topics under one parent."""
