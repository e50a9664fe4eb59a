"""Events: what happened to a group that its operator has to know, told once in the log and counted in the metrics.

handler ──▶ Tx.tell ──▶ after the commit: Reporter ──▶ log, at most one line a minute for each of a kind
                                                  └──▶ Committed.events ──▶ metrics.py, all of them
"""

import logging
from typing import NamedTuple

log = logging.getLogger("popmq.events")

#: An event of one kind, group and topic is logged once in this time; the next line says how many there were.
QUIET_MS = 60_000
#: Kinds, groups and topics that are remembered; then all are forgotten, and a line may come early.
REMEMBERED_MAX = 10_000


class Event(NamedTuple):
    """`kind`: a word for the metrics. `messages`: how many it is about. `text`: one sentence, without a full stop."""

    kind: str
    group: str
    topic: str
    messages: int
    text: str
    level: int = logging.WARNING


class Reporter:
    """Writes events to the log. On the writer's thread."""

    def __init__(self) -> None:
        #: (kind, group, topic) → when the last line was written, and events since.
        self._told: dict[tuple[str, str, str], tuple[int, int]] = {}

    def report(self, events: list[Event], now_ms: int) -> None:
        """One line for each event, but for those that follow another one of their kind too soon."""
        for event in events:
            key = (event.kind, event.group, event.topic)
            told_ms, more = self._told.get(key, (now_ms - QUIET_MS, 0))
            if now_ms - told_ms < QUIET_MS:
                self._told[key] = (told_ms, more + 1)
                continue
            if len(self._told) >= REMEMBERED_MAX:
                self._told.clear()
            self._told[key] = (now_ms, 0)
            log.log(event.level, "%s%s", event.text, f" (and {more} more like this before)" if more else "")
