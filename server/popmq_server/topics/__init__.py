"""Settings, log, index, quotas of topics."""
