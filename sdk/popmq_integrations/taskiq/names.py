"""How tasks of taskiq are named in the broker."""

import hashlib

#: Bytes of the id of a task that is a message id as it is: less than the broker's limit, since the ids of results begin
#: with it.
TASK_ID_BYTES_MAX = 100


def id_of(task_id: str) -> str:
    """The message id that the broker knows: that of the task, or a hash of one that is too long."""
    fits = 0 < len(task_id.encode()) <= TASK_ID_BYTES_MAX
    return task_id if fits else hashlib.sha256(task_id.encode()).hexdigest()
