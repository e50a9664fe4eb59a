"""mode=offsets: plans ranges of offsets in the driver, and pulls them in tasks; the broker keeps nothing of it."""
