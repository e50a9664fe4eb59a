"""What can be asked about message groups of FIFO topics: see message_groups.py."""

from typing import NamedTuple


class ResumeMessageGroup(NamedTuple):
    """→ whether something is left: ask again.

    `dead_letter`: the stopped head goes to the dead-letter topic; else it is tried anew, attempts from 0.
    """

    topic: str
    group: str
    message_group: str
    dead_letter: bool = False
