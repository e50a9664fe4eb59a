"""The load clients of a campaign, and their record of every call."""
