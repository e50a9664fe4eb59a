"""The storage room: key formats, the LMDB environment, overlay tables, the checker."""
