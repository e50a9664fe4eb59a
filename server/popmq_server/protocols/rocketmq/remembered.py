"""In-memory records of deliveries, for repeated calls. Bounded, and lost at a restart.

    FinishedHandles  handles whose message was acked or dead-lettered: the engine answers HANDLE_LAPSED for these and
                     for expired leases alike, but a client that repeats a call whose answer it lost did nothing wrong
    NewestHandles    the handle by message id, for the one client that sends no handle; the engine finds it, too, slowly
    Filters          the filter that a group used last

Clients repeat within seconds, and some ten thousand handles are minutes' worth. A forgotten handle is answered with
INVALID_RECEIPT_HANDLE, which ends the repeats as well.
"""

import logging
from collections import OrderedDict

from popmq_server.values.filters import filter as filters

log = logging.getLogger("popmq.protocols")

FINISHED_MAX = 65_536
HELD_MAX = 20_000
FILTERS_MAX = 10_000
#: Two filters of one group and topic within this time cause a warning, at most once in this time.
FILTERS_MS = 60_000


class FinishedHandles:
    """Handles of finished messages, each with the group that finished it."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, str] = OrderedDict()

    def add(self, handle: str, group: str) -> None:
        self._groups[handle] = group
        if len(self._groups) > FINISHED_MAX:
            self._groups.popitem(last=False)

    def has(self, handle: str, group: str) -> bool:
        return self._groups.get(handle) == group


class NewestHandles:
    """The newest handle of a message, by holder, group and message id."""

    def __init__(self) -> None:
        self._handles: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def add(self, client_id: str, group: str, message_id: str, handle: str) -> None:
        self._handles[client_id, group, message_id] = handle
        if len(self._handles) > HELD_MAX:
            self._handles.popitem(last=False)

    def find(self, client_id: str, group: str, message_id: str) -> str:
        """ "" when unknown."""
        return self._handles.get((client_id, group, message_id), "")


class Filters:
    """The last filter of each group and topic, when it was used, and when a change was logged last."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, str], tuple[filters.Filter, int, int]] = OrderedDict()

    def used(self, group: str, topic: str, wanted: filters.Filter, now_ms: int) -> None:
        """Warns when two consumers of one group use different filters."""
        before, seen_ms, logged_ms = self._last.pop((group, topic), (wanted, now_ms, -FILTERS_MS))
        if not before.same(wanted) and now_ms - seen_ms < FILTERS_MS and now_ms - logged_ms >= FILTERS_MS:
            logged_ms = now_ms
            log.warning(
                "consumers of group %s use different filters in topic %s, %s and %s: "
                "each misses messages that only the other's filter selects",
                group,
                topic,
                before,
                wanted,
            )
        self._last[group, topic] = wanted, now_ms, logged_ms
        if len(self._last) > FILTERS_MAX:
            self._last.popitem(last=False)
