"""Counts the forks that made this process. A child has the memory of its parent, and none of its threads: a lock that
one of them held is never released. So what belongs to the parent is recognized without a lock, before any is taken.

The end of the interpreter is the same: while it closes generators and calls `__del__`, its other threads have stopped
wherever they were.
"""

import os
import sys

count = 0

#: What to do about a client that is used by `__del__` or a generator when the interpreter ends.
EARLIER = "use and close clients before: with `with`, or by atexit.register"


def without_threads(born: int) -> bool:
    """Whether what was made when `count` was `born` has lost its threads: in a forked child, or as the program ends."""
    return count != born or sys.is_finalizing()


def _in_child() -> None:
    global count
    count += 1


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_in_child)
