"""The PopMQ broker."""
