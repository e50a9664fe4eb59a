"""What this process remembers of deliveries, for repeats; bounded, and forgotten by a restart.

    Finished   handles whose message was acked or dead lettered: the engine says HANDLE_LAPSED of these and of those
               whose lease ran out alike, but a client that repeats a call whose answer it lost did nothing wrong
    Held       the handle by message id, for the one client that names no handle
    Filters    which filter a group used last

Clients repeat within seconds, so some ten thousand are minutes' worth. What is forgotten is answered
INVALID_RECEIPT_HANDLE, which ends the repeats as well.
"""

import logging
from collections import OrderedDict

from popmq_server.filters import filter as filters

log = logging.getLogger("popmq.api")

FINISHED_MAX = 65_536
HELD_MAX = 20_000
FILTERS_MAX = 10_000
#: Two filters of one group and topic within this time are told, once in this time.
FILTERS_MS = 60_000


class Finished:
    """Handles of done messages, with the group that was allowed to do it."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, str] = OrderedDict()

    def add(self, handle: str, group: str) -> None:
        self._groups[handle] = group
        if len(self._groups) > FINISHED_MAX:
            self._groups.popitem(last=False)

    def has(self, handle: str, group: str) -> bool:
        return self._groups.get(handle) == group


class Held:
    """The newest handle of a message, by who holds it and its message id."""

    def __init__(self) -> None:
        self._handles: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def add(self, client_id: str, group: str, message_id: str, handle: str) -> None:
        self._handles[client_id, group, message_id] = handle
        if len(self._handles) > HELD_MAX:
            self._handles.popitem(last=False)

    def find(self, client_id: str, group: str, message_id: str) -> str:
        """ "" when nobody remembers."""
        return self._handles.get((client_id, group, message_id), "")


class Filters:
    """The filter that each group used last in each topic, when, and when a change was told last."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, str], tuple[filters.Filter, int, int]] = OrderedDict()

    def used(self, group: str, topic: str, wanted: filters.Filter, now_ms: int) -> None:
        """Warns of two consumers of one group that take messages from each other."""
        before, seen_ms, told_ms = self._last.pop((group, topic), (wanted, now_ms, -FILTERS_MS))
        if not before.same(wanted) and now_ms - seen_ms < FILTERS_MS and now_ms - told_ms >= FILTERS_MS:
            told_ms = now_ms
            log.warning(
                "consumers of group %s read topic %s by %s and by %s: what one does not want, the other never gets",
                group,
                topic,
                before,
                wanted,
            )
        self._last[group, topic] = wanted, now_ms, told_ms
        if len(self._last) > FILTERS_MAX:
            self._last.popitem(last=False)
