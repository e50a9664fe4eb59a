"""What clients do to the broker in a campaign, and their record of it."""
