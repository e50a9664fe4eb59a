"""Reasons of dead letters, by which they are counted and chosen."""

import re

#: Length of a headline, the first part of a reason.
HEADLINE_CHARACTERS = 200
#: A name, perhaps with a module or class before it, and a colon: `popmq.errors.Unavailable: …`.
_EXCEPTION = re.compile(r"((?:[\w$<>]+\.)*[A-Z][\w$]*):(?= |$)")


def headline(reason: str) -> str:
    """One line of a reason: of a Python traceback the last one, which has the error, else the first."""
    said = [text for text in reason.splitlines() if text.strip()] or [""]
    return (said[-1] if said[0].startswith("Traceback") else said[0]).rstrip()[:HEADLINE_CHARACTERS]


def exception_in(headline: str) -> str:
    """The exception with which a headline begins, as `ValueError: no account 7` does; "" if it begins with none."""
    found = _EXCEPTION.match(headline)
    return found[1] if found else ""


def other_than(reason: str, wanted: str | None, exception: str) -> str:
    """Why a dead letter with this reason is not meant by those that were asked for; "" if it is."""
    said = headline(reason)
    if wanted not in (None, said):
        return f"has the reason {said!r}"
    if exception not in ("", found := exception_in(said)):
        return f"has the exception {found!r}" if found else "has no exception in its reason"
    return ""
