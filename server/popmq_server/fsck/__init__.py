"""`popmq check` and `popmq compact`, for a stopped store."""
