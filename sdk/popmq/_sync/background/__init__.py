"""What a Client runs beside its calls: gathered sends, checks of half messages, waiting replies."""
