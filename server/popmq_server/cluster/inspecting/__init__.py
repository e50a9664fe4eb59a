"""Looking at messages without reading them for a group, and dead letters that are delivered again."""
