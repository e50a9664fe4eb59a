"""The writer thread: commands in commit batches, and periodic maintenance."""
