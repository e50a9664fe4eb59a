"""mode=offsets: plans ranges of offsets in the driver, and pulls them in tasks; the broker keeps a group's offsets."""
