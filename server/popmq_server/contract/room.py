"""Room for the answers of calls: an engine asks for it before and after it reads messages (answer_room.py)."""

from typing import Protocol


class Room(Protocol):
    """Knows the call for which the engine reads."""

    def check(self) -> None:
        """Raises Refused when an answer to the running call would have no room."""

    def hold(self, size: int) -> None:
        """Holds `size` bytes of messages until the running call is over. Raises Refused when there is no room."""
