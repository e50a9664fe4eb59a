"""The embedded engine: one process, one LMDB store, an event loop and a writer thread."""
