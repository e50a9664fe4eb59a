"""The pages of the data file, read without LMDB: counted, checked, and rescued from a damaged file."""
