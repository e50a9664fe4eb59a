"""The data folder, keys, formats and tables; lmdb.py is the only module that opens LMDB."""
