"""Turns: the order in which a pop visits the queues of a topic, and when it visits the retry topic first.

    NORMAL, FIFO   the least recently served queue first
    PRIORITY       high to low; one pop in ten the least recently served queue first (priority.py)
    retries        one pop in five begins with the retry topic; in FIFO topics one in two with the ready message
                   groups. A queue gives way to them once, then it is served

Each counter belongs to one source, not to "the n-th pop": otherwise pops in a fixed pattern would always meet the same
source. With one counter for both choices, five queues and a retry backlog, queue 0 was never served.

A pop that takes a message is a turn. Of the pops that name queue q (or no queue) while q has messages:

    another queue      is served before q at most once, since it is after q from then on   n - 1 pops
    the retry topic    comes before q, and before each of those, at most once              n pops
    PRIORITY           nine pops may take from higher queues before each of those          10 × (n - 1) pops

So q waits at most 2n - 1 pops (PRIORITY: 11n) and, if all pops name the same queues, n - 1 + n/4. The retry topic waits
at most 4 pops (FIFO: 1) and one more for each queue that gave way and was not served yet: 4 + n; if all pops name the
same queues, no such queue is left, so 5. Queues at their in-flight limit are skipped.

Turns are in a table in memory, so a pop that runs again has the same turn. A restart resets them.

See docs/decisions/0027-fair-turns.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

from popmq_server.values import priority
from popmq_server.values.records import Topic

#: One pop in this many begins with the retry topic; in FIFO topics with ready message groups.
RETRY_FIRST_EVERY, READY_FIRST_EVERY = 5, 2


class Turns(NamedTuple):
    """The turns of one group in one topic."""

    turn: int = 0  # pops that took a message
    retried: int = 0  # the turn in which retries were served last
    order: tuple[int, ...] = ()  # the queues, least recently served first
    gave_way: frozenset[int] = frozenset()  # queues that gave way to retries since they were served last
    passed: tuple[int, ...] = ()  # PRIORITY, by queue: pops since one began with the least recently served

    def visits(self, topic: Topic, queues: range | tuple[int, ...]) -> Sequence[int]:
        """The queues in the order in which the next pop visits them; queues added to the topic later come first."""
        order = self._whole(topic)
        if not isinstance(queues, range):
            order = tuple(queue for queue in order if queue in queues)
        return priority.visits(self.passed, order) if topic.type == "PRIORITY" else order

    def _whole(self, topic: Topic) -> tuple[int, ...]:
        known = len(self.order)
        return self.order if known == topic.queues else (*range(known, topic.queues), *self.order)

    def retries_due(self, topic: Topic) -> bool:
        """Whether the next pop begins with retries."""
        every = READY_FIRST_EVERY if topic.type == "FIFO" else RETRY_FIRST_EVERY
        return self.turn + 1 - self.retried >= every

    def after(
        self, topic: Topic, visits: Sequence[int], served: Sequence[int], *, retried: bool, gave_way: int | None
    ) -> "Turns":
        """The turns after a pop that took messages from the queues `served`, the retry topic, or both.

        `gave_way`: the queue that would have been visited first, if retries had not come before it.
        """
        passed_over = self.gave_way if gave_way is None else self.gave_way | {gave_way}
        return Turns(
            self.turn + 1,
            self.turn + 1 if retried else self.retried,
            _moved_to_end(self._whole(topic), served),
            passed_over.difference(served) if passed_over else passed_over,
            priority.after(self.passed, visits, topic.queues) if served and topic.type == "PRIORITY" else self.passed,
        )


def _moved_to_end(order: tuple[int, ...], served: Sequence[int]) -> tuple[int, ...]:
    """The order with `served` moved to the end. Mostly it is one queue, near the front."""
    if len(served) == 1:
        place = order.index(served[0])
        return (*order[:place], *order[place + 1 :], served[0])
    return (*(queue for queue in order if queue not in served), *served)
