"""How many messages a consumer pops at a time. Pure."""

#: Seconds in which a batch should be handled: a larger one would keep messages from idle consumers.
BATCH_S = 1.0


class PopSize:
    """The size of the next pop: first one, doubled after a batch that was handled in time, else halved."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 1
        self._asked = 0
        self._got = 0
        self._since = 0.0

    def popped(self, messages: int, now: float) -> None:
        """The handler gets a batch of this many messages."""
        self._got = messages
        self._since = now

    def next(self, room: int, now: float) -> int:
        """The size of the next pop, at most `room`, after the last batch was handled.

        A batch that was not full changes nothing: the topic was empty, which says nothing of the handler.
        """
        if self._got and now - self._since > BATCH_S:
            self._size = max(1, self._size // 2)
        elif self._got and self._got >= self._asked:
            self._size = min(self._most, self._size * 2)
        self._asked = min(self._size, room)
        self._got = 0
        return self._asked
