"""Commands on the contents of a topic: see purge.py."""

from typing import NamedTuple


class PurgeTopic(NamedTuple):
    """→ the number of dropped messages: those readable by position, the delayed and the half ones."""

    name: str
