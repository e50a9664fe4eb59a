"""What a person at the command line can do about an error, where the broker does not know it."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable
from typing import Any

import popmq
from popmq import errors

#: What the broker says of an unknown name, and how much of it a similar name has in common with it.
UNKNOWN = re.compile(r"there is no (?:topic|group|schedule) '(.+)'$")
LIKENESS = 0.75
_LISTS: dict[type[errors.PopMQError], Callable[[popmq.Client], Any]] = {
    errors.TopicNotFound: lambda client: client.topics.list(),
    errors.GroupNotFound: lambda client: client.groups.list(),
    errors.ScheduleNotFound: lambda client: client.schedules.list(),
}


def advise(client: popmq.Client, error: errors.PopMQError) -> None:
    """Adds the most similar name to the error's action, or the options that name an access key.

    A key sees only names that it may list.
    """
    if isinstance(error, errors.Unauthenticated):
        error.action = "--access-key NAME --secret-file FILE, or the variables POPMQ_ACCESS_KEY and POPMQ_SECRET"
    found, names = UNKNOWN.search(error.message), _LISTS.get(type(error))
    if found is None or names is None:
        return
    with contextlib.suppress(errors.PopMQError):
        close = difflib.get_close_matches(found[1], [one.name for one in names(client)], 1, LIKENESS)
        if close:
            otherwise = f" Otherwise: {error.action}" if error.action else ""
            error.action = f"did you mean {close[0]}?{otherwise}"
