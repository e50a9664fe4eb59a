"""A feature: messages that the broker sends at the times of a cron expression."""
