"""Topics, groups, messages, CheckPoints as values."""
