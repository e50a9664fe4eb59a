"""What must be true of the clients' records and of the broker afterwards."""
