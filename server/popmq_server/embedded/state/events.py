"""Events that the operator of a group must know: logged with a rate limit, all counted in the metrics.

handler ──▶ Tx.tell ──▶ after the commit: Reporter ──▶ log, at most one line a minute per kind, group and topic
                                                  └──▶ Committed.events ──▶ metrics.py, all of them
"""

import logging
from typing import NamedTuple

log = logging.getLogger("popmq.events")

#: Events of one kind, group and topic are logged once in this time; the next line has the number of the others.
QUIET_MS = 60_000
#: Limit of remembered (kind, group, topic) entries. At the limit all are dropped, so a line may come early.
REMEMBERED_MAX = 10_000


class Event(NamedTuple):
    """`kind`: the metric label. `messages`: number of affected messages. `text`: one sentence, without a full stop."""

    kind: str
    group: str
    topic: str
    messages: int
    text: str
    level: int = logging.WARNING


def dropped(group: str, topic: str, queue: int, offset: int, least: int, lost: int) -> Event:
    """Retention moved a group from an offset to `least`, and dropped messages that it had not read."""
    text = (
        f"retention moved group {group!r} in queue {queue} of topic {topic!r} from offset {offset} "
        f"to {least}: retention dropped {lost} messages that it had not read"
    )
    return Event("messages_dropped", group, topic, lost, text)


class Reporter:
    """Writes events to the log. Used by the writer thread only."""

    def __init__(self) -> None:
        #: (kind, group, topic) → time of the last line, number of events since.
        self._logged: dict[tuple[str, str, str], tuple[int, int]] = {}

    def report(self, events: list[Event], now_ms: int) -> None:
        """Logs each event, except those within QUIET_MS after a line for the same kind, group and topic."""
        for event in events:
            key = (event.kind, event.group, event.topic)
            logged_ms, more = self._logged.get(key, (now_ms - QUIET_MS, 0))
            if now_ms - logged_ms < QUIET_MS:
                self._logged[key] = (logged_ms, more + 1)
                continue
            if len(self._logged) >= REMEMBERED_MAX:
                self._logged.clear()
            self._logged[key] = (now_ms, 0)
            log.log(event.level, "%s%s", event.text, f" (and {more} more like this before)" if more else "")
