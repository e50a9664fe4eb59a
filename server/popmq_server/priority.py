"""PRIORITY topics: which queues a pop visits, in which order, so that the urgent goes first and nothing starves.

    Send      queue = min(priority, queues - 1)
    Pop       1 2 3 4 5 6 7 8 9   queues 9, 8, 7 … 0      high to low
              10                  the queue that was visited longest ago first, of equals the lower one

The tenth pop is why the bound holds for every queue. Were it low to high, the lowest and the highest would share all
pops, and a queue in the middle would wait for ever. Visited longest ago means that n queues that never run empty are
each served within 10 × (n - 1) pops, and a single waiting one within 10.

Turns are counted for each set of queues that is named: clients that take turns with queues of their own would else meet
the tenth pop always at the same client. A pop that the retry topic fills alone visits no queue and uses up no turn.
"""

from collections.abc import Iterator

#: One pop in so many begins with the queue that was visited longest ago.
LOW_FIRST_EVERY = 10
#: Sets of named queues whose turns are remembered, for each group in a topic.
SETS_MAX = 1024


class Turns:
    """The turns of one group in one topic. Lost at a restart, which harms nothing: then they begin anew."""

    __slots__ = ("_counts", "_visited")

    def __init__(self) -> None:
        self._counts: dict[tuple[int, ...], int] = {}
        self._visited: dict[int, int] = {}

    def visits(self, queues: range | tuple[int, ...], turn: int) -> Iterator[int]:
        """The queues in the order of this pop; each that is asked for counts as visited, the first as a turn.

        `turn` grows with every pop of the group.
        """
        for queue in self._plan(queues):
            self._visited[queue] = turn
            yield queue

    def _plan(self, queues: range | tuple[int, ...]) -> list[int]:
        """High to low, or, when it is its turn, longest ago first."""
        named = () if isinstance(queues, range) else queues
        count = self._counts.get(named, 0) + 1
        if len(self._counts) >= SETS_MAX:
            self._counts.clear()
        self._counts[named] = count % LOW_FIRST_EVERY
        if count == LOW_FIRST_EVERY:
            return sorted(queues, key=lambda queue: (self._visited.get(queue, 0), queue))
        return sorted(queues, reverse=True)
