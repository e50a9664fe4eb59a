"""The deadline of the running call, for an engine that waits for others: it ends its own calls in time.

Both protocols put the running call into a context variable, for the log as well (logs.CALL). Its deadline is read only
by an engine that asks: a call pays nothing for it, with or without one.
"""

from popmq_server import logs


def remaining_s() -> float | None:
    """Seconds until the deadline of the running call's client, at least 0; None: it has none, or no call is running.

    Work that an engine begins for a call, also in another task, is of that call.
    """
    call = logs.CALL.get()
    if call is None:
        return None
    left_s: float | None = call.time_remaining()
    return left_s
