"""Commands on message groups of FIFO topics: see message_groups.py."""

from typing import NamedTuple


class ResumeMessageGroup(NamedTuple):
    """→ None; of one piece, whether stopped messages are left.

    `dead_letter`: the stopped head goes to the dead letter topic; otherwise it is delivered again, attempts from 0.
    """

    topic: str
    group: str
    message_group: str
    dead_letter: bool = False
