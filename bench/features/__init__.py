"""Parts of the bench for single features, each a program of its own."""
