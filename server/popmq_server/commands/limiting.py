"""What can be asked about what a topic holds: see purge.py."""

from typing import NamedTuple


class PurgeTopic(NamedTuple):
    """→ how many messages were dropped: those that could be read by position, and the delayed and half ones."""

    name: str
