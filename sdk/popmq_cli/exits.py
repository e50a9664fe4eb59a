"""Exit codes, for scripts: also the text that `popmq --help` ends with.

    0    done
    1    refused: not found, exists with other settings, a field out of range, a handle that is over
    2    wrong usage
    3    no broker answers at the endpoint, or not in time
    4    some entries were refused, the others are done
    5    refused for now: the broker is busy or its store is full
    70   a bug of the broker
    130  interrupted

`popmq serve` ends with 0 after SIGTERM, 74 when a commit failed, 78 when it cannot start.
"""

from popmq import errors

DONE = 0
REFUSED = 1
UNREACHABLE = 3
PARTLY = 4
LATER = 5
BUG = 70
INTERRUPTED = 130

#: The first class that fits decides.
BY_ERROR: list[tuple[type[errors.PopMQError], int]] = [
    (errors.PartlyRefused, PARTLY),
    (errors.Unavailable, UNREACHABLE),
    (errors.DeadlineExceeded, UNREACHABLE),
    (errors.TryLater, LATER),
    (errors.InternalError, BUG),
    (errors.PopMQError, REFUSED),
]


def code_of(error: errors.PopMQError) -> int:
    """The exit code for an error of the SDK."""
    return next(code for kind, code in BY_ERROR if isinstance(error, kind))
