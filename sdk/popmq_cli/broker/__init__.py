"""Commands about a broker as a whole: run, check, copy and measure it, and give it a name."""
