"""Schedules: messages that the broker sends by itself, at the times of a cron expression."""
