"""The reason that stays with a message which is released or rejected: a text of at most 4 KiB."""

import traceback
from types import TracebackType

from popmq._given.fields import text

#: What the broker stores of a reason.
REASON_BYTES_MAX = 4096
#: Of these, what the exception's own text may take; the rest is for the last lines of its traceback.
EXCEPTION_BYTES_MAX = 1024


def clip(reason: str) -> str:
    """The first 4 KiB of a reason as UTF-8, cut between characters. Raises TypeError for what is no text."""
    return text(reason, "reason").encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")


def reason_of(error: BaseException) -> str:
    """An exception as a reason: its type and text, then the end of its traceback, as far as 4 KiB allow."""
    try:
        told = str(error)
    except Exception:
        told = "<exception str() failed>"  # as a traceback says it
    text = f"{type(error).__qualname__}: {told}".encode(errors="replace")[:EXCEPTION_BYTES_MAX].decode(errors="ignore")
    lines = "".join(traceback.format_tb(handlers_traceback(error))).encode(errors="replace")
    tail = lines[-(REASON_BYTES_MAX - EXCEPTION_BYTES_MAX - 1) :].decode(errors="ignore")
    return clip(f"{text}\n{tail}".rstrip())


def handlers_traceback(error: BaseException) -> TracebackType | None:
    """The traceback without the frames of the worker that called the handler; all of it if it has no others."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_globals.get("__name__", "").startswith("popmq._worker."):
        found = found.tb_next
    return found or error.__traceback__
