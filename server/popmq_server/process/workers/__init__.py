"""`--workers N`: several processes that serve the same ports, and the one that supervises them."""
