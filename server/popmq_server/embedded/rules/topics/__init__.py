"""The core: topics and consumer groups, the log and its index, quotas."""
