"""The life of a gateway around its engine: its settings, whether it reaches its cluster, what its metrics show."""
