"""What an AsyncClient runs beside its calls: gathered sends, checks of half messages, requests."""
