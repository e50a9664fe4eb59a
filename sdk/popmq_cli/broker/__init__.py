"""Commands about a broker as a whole: run it, check, copy and measure it, know it by name."""
