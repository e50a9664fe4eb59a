"""How the benchmarks put load on a broker and measure it."""
