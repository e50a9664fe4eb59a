"""The blocking half: Client and what it is made of, most of it written by sdk/twin.py."""
