"""A feature: lite topics, many small topics under one parent."""
