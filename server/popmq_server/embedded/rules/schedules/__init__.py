"""A wing: messages that the broker sends at the times of a cron expression."""
