"""The writer thread: commands in commit batches, periodic maintenance."""
