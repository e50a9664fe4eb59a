"""Counts the forks that made this process. A child has the memory of its parent, and none of its threads: a lock that
one of them held is never released. So what belongs to the parent is recognized without a lock, before any is taken.
"""

import os

count = 0


def _in_child() -> None:
    global count
    count += 1


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_in_child)
