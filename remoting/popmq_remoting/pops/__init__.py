"""Popped messages: their handles, what a pop's answer says about them, and acks of many at once."""
