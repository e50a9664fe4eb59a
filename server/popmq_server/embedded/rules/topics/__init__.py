"""Topics: settings, log, index, quotas."""
