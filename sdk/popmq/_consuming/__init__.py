"""What consumers decide, without waiting or calling: options, lease renewal, order of message groups, outcomes."""
