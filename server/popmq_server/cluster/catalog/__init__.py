"""What exists: topics, groups and layouts, read from the cluster and remembered for seconds; and how they are made."""
