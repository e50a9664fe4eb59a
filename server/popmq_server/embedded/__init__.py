"""The embedded engine: rules on one LMDB store, run by an event loop and a writer thread."""
