"""Exit codes, for scripts: also the text that `popmq --help` ends with.

    0    done
    1    refused: not found, exists with other settings, a field out of range, a handle that is over
    2    wrong usage
    3    no broker answers at the endpoint, or not in time
    4    some entries were refused, the others are done
    5    refused for now: the broker is busy or its store is full
    70   a bug of the broker
    74   the output cannot be written: its disk is full
    129  ended by SIGHUP
    130  interrupted
    141  who read the output has closed its pipe, as `| head` does
    143  ended by SIGTERM

`popmq serve` ends with 0 after SIGTERM, 74 when a commit failed, 78 when it cannot start.
"""

from typing import TYPE_CHECKING

from popmq_cli.shared.signals import Terminated

if TYPE_CHECKING:
    from popmq.errors import PopMQError

DONE = 0
REFUSED = 1
USAGE = 2
UNREACHABLE = 3
PARTLY = 4
LATER = 5
BUG = 70
NOT_WRITTEN = 74
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143


def code_of(error: "PopMQError") -> int:
    """The exit code for an error of the SDK: the first class that fits decides."""
    from popmq import errors  # here, because `popmq --help` shows this module's text and needs no SDK

    by_error: list[tuple[type[PopMQError], int]] = [
        (errors.PartlyRefused, PARTLY),
        (errors.Unavailable, UNREACHABLE),
        (errors.DeadlineExceeded, UNREACHABLE),
        (errors.TryLater, LATER),
        (errors.InternalError, BUG),
        (errors.PopMQError, REFUSED),
    ]
    return next(code for kind, code in by_error if isinstance(error, kind))


def after(interrupt: KeyboardInterrupt) -> int:
    """The exit code after Ctrl-C or a signal: as a shell reports a process that a signal has ended."""
    return 128 + interrupt.number if isinstance(interrupt, Terminated) else INTERRUPTED
