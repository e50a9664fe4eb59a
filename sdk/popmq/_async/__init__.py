"""The asynchronous half: AsyncClient and what it is made of."""
