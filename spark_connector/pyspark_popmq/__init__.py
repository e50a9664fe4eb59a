"""Makes Spark find the format popmq by its name."""
