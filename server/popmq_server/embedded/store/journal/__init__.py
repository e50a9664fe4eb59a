"""The journal: changes of commit batches that LMDB has not committed yet, written once and synced once."""
