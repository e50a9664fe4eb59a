"""What callers give: checks of it, and its form as JSON."""
