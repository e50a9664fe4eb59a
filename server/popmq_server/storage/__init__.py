"""Keys, formats, tables, the one door to LMDB."""
