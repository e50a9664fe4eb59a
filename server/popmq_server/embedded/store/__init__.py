"""Keys, formats and tables of the store; the only access to LMDB."""
