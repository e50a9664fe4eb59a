"""`popmq check`, its repair and `popmq compact`, for a stopped store."""
