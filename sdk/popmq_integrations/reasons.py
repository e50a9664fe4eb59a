"""Why a task became a dead letter: its exception and the end of its traceback, as a text that the broker stores."""

import traceback

#: Bytes that the broker stores of a reason.
REASON_BYTES_MAX = 4096
#: Of these, what the exception's own text may take; the rest is for the last lines of its traceback.
EXCEPTION_BYTES_MAX = 1024


def reason_of(error: BaseException, framework: str) -> str:
    """The type and text of an error, then the end of its traceback without the frames of the framework that called it.

    It begins as the reasons of the SDK do, so that `popmq dlq list --by exception` counts both.
    """
    trace = error.__traceback__
    while trace is not None and _is_of(trace.tb_frame.f_globals.get("__name__", ""), framework):
        trace = trace.tb_next
    lines = "".join(traceback.format_tb(trace or error.__traceback__))
    return with_trace(f"{type(error).__qualname__}: {error}", lines)


def with_trace(text: str, lines: str) -> str:
    """A text and the end of the lines below it, together 4 KiB at most."""
    begin = text.encode(errors="replace")[:EXCEPTION_BYTES_MAX].decode(errors="ignore")
    room = REASON_BYTES_MAX - len(begin.encode()) - 1
    end = lines.encode(errors="replace")[-room:].decode(errors="ignore")
    return f"{begin}\n{end}".rstrip()


def _is_of(module: str, framework: str) -> bool:
    return module == framework or module.startswith(f"{framework}.")
