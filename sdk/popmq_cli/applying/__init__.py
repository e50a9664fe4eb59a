"""`popmq apply`: what a file says there is to be, and what a broker has."""
