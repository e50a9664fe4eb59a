"""What an outbox asks a database: texts of SQL go out, rows come in. No module here opens a connection."""
