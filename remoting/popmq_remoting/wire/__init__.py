"""Requests and answers as bytes: frames, both forms of their header, and signatures."""
