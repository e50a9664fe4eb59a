"""Value types: topics, groups, messages, CheckPoints, handles."""
