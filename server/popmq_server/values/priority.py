"""Priority: the queue of each priority in a PRIORITY topic, and the order in which a pop visits these queues.

send    the queue of its number; higher numbers go to the last queue
pop     high to low; one pop in LOW_FIRST_EVERY the least recently served queue first, so that none is never served
"""

from collections.abc import Sequence

#: One pop in this many begins with the least recently served queue.
LOW_FIRST_EVERY = 10


def queue_of(priority: int, queues: int) -> int:
    """The queue of a message with this priority."""
    return min(priority, queues - 1)


def low_first(passed: Sequence[int], queues: Sequence[int]) -> bool:
    """Whether the next pop begins with the least recently served of `queues`.

    `passed`: by queue, the pops since one began so. A queue that was added later has no count yet.
    """
    known = len(passed)
    return any(queue < known and passed[queue] >= LOW_FIRST_EVERY - 1 for queue in queues)


def visits(passed: Sequence[int], order: Sequence[int]) -> Sequence[int]:
    """The queues of `order`, the least recently served first, as the next pop visits them."""
    return order if low_first(passed, order) else sorted(order, reverse=True)


def after(passed: Sequence[int], visited: Sequence[int], queues: int) -> tuple[int, ...]:
    """`passed` after a pop that may take from the queues `visited` and was served by one of a topic's `queues`."""
    began_low = low_first(passed, visited)
    counts = [*passed, *[0] * (queues - len(passed))]
    for queue in visited:
        counts[queue] = 0 if began_low else counts[queue] + 1
    return tuple(counts)
