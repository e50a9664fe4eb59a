"""How many messages a consumer pops at a time, and how long it puts off a pop that would bring fewer. Pure."""

#: Seconds in which a batch should be handled: a larger one would keep messages from idle consumers.
BATCH_S = 1.0
#: The part of a pop's time for which the next one may be put off. The broker syncs the disk for a pop of one message as
#: for one of a hundred; a pop that brings twice as many after half its time more is worth the wait.
PATIENT_FOR = 0.5
#: And the most, in seconds: the time of a pop also has how long it waited for a message, or for a broker.
PATIENT_S_MAX = 0.01


class PopSize:
    """The size of the next pop: first one, doubled after a batch that was handled in time, else halved."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 1
        self._asked = 0
        self._got = 0
        self._since = 0.0
        #: Seconds for which a pop that has less room than `wanted` waits for handlers to settle more: none after a
        #: batch that was not full. The topic was empty then, and an idle handler is to get the next message at once.
        self.patience = 0.0

    def popped(self, messages: int, took: float, now: float) -> None:
        """The handler gets a batch of this many messages, by a pop that took so many seconds."""
        self._got = messages
        self._since = now
        full = 0 < self._asked <= messages
        self.patience = min(took * PATIENT_FOR, PATIENT_S_MAX) if full else 0.0

    def wanted(self, now: float) -> int:
        """The size of the next pop if there is room, after the last batch was handled.

        A batch that was not full changes nothing: the topic was empty, which says nothing of the handler.
        """
        if self._got and now - self._since > BATCH_S:
            self._size = max(1, self._size // 2)
        elif self._got and self._got >= self._asked:
            self._size = min(self._most, self._size * 2)
        self._got = 0
        return self._size

    def next(self, room: int, now: float) -> int:
        """The size of the next pop, at most `room`."""
        self._asked = min(self.wanted(now), room)
        return self._asked
