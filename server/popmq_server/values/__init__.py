"""Topics, groups, messages and handles as values: no state, no rules, no store."""
