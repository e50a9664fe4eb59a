"""The writer thread: runs commands in commit batches, and periodic maintenance."""
