"""How a call reaches the broker: endpoint, keys, retries, errors and spans, as far as both clients share them."""
