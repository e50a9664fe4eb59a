"""Numbers for operators: metrics, rates, and the HTTP port that shows them. Works with any engine."""
