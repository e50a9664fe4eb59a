"""Queues of task frameworks as topics and groups, and their tasks as messages: what Dramatiq and taskiq have alike.

See docs/decisions/0061-dramatiq-and-taskiq.md.
"""

import hashlib
import re
from typing import Any

from popmq.duration import Duration
from popmq.topic import Retention

#: Bytes of a task's id that is a message id as it is: less than the broker's limit, since ids of results begin with it.
TASK_ID_BYTES_MAX = 100
#: The highest priority: one queue for each.
PRIORITY_MAX = 1023
#: Tasks that all workers may have in hand together: enough for a thousand workers that prefetch 100.
IN_FLIGHT_MAX = 100_000
#: What the broker takes as a tag.
_TAG = re.compile(r"[A-Za-z0-9_.:\-]{1,64}\Z")


def id_of(task_id: str) -> str:
    """The message id that the broker knows: that of the task, or a hash of one that is too long."""
    fits = 0 < len(task_id.encode()) <= TASK_ID_BYTES_MAX
    return task_id if fits else hashlib.sha256(task_id.encode()).hexdigest()


def tag_of(name: str) -> str:
    """The tag of a task: its name, or "" for one that the broker does not take."""
    return name if _TAG.match(name) else ""


def topic_settings(max_priority: int | None, keep: Duration) -> dict[str, Any]:
    """How the topic of a queue is created. Raises ValueError for a `max_priority` that is none."""
    if max_priority is not None and max_priority not in range(1, PRIORITY_MAX + 1):
        raise ValueError(f"max_priority is {max_priority!r}: give a number from 1 to {PRIORITY_MAX}")
    # Without priorities one queue: workers begin tasks in the order in which they were sent, as with a list of Redis.
    queues = max_priority + 1 if max_priority else 1
    return {"type": "PRIORITY" if max_priority else "DELAY", "queues": queues, "retention": Retention(keep=keep)}


def group_settings(invisible_time: Duration, max_attempts: int) -> dict[str, Any]:
    """How the group of the workers is created."""
    return {"invisible": invisible_time, "max_attempts": max_attempts, "in_flight_max": IN_FLIGHT_MAX}
