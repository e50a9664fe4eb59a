"""The rules of retention: which messages may be dropped, and which a group has lost by that.

The model does not predict when a message is dropped: the engine tells what can still be read, and each dropped message
must have been allowed to be dropped.

    by age       it was stored keep_ms ago                                        who had not read it counts a lost one
    otherwise    every group has been past it for keep_ms, nobody went back       what is held stays in any case
"""

from tests.engine.search.model.model_facts import Place, must
from tests.engine.search.model.model_topics import Topics


class Kept(Topics):
    """How long messages stay."""

    def set_retention(self, name: str, by_age: bool, keep_ms: int) -> str:
        found = self.topics.get(name)
        if found is None:
            return "TOPIC_NOT_FOUND"
        found.by_age, found.keep_ms = by_age, keep_ms
        return ""

    def pass_time(self, ms: int) -> None:
        """Notes the time for each message that some group has not read."""
        self.now_ms += ms
        for name, found in self.topics.items():
            found.unread_ms |= dict.fromkeys(self.unread(name), self.now_ms)

    def unread(self, name: str) -> set[Place]:
        """The messages of a topic that some group has not read."""
        queues = self.topics[name].queues
        stands = [view.next for (_, of), view in self.views.items() if of == name]
        return {
            (queue, offset)
            for queue, rows in enumerate(queues)
            for offset in range(min((stand[queue] for stand in stands), default=len(rows)), len(rows))
        }

    def forget(self, name: str, begin: list[int], indexed: set[Place], readable: set[Place]) -> None:
        """Learns the first offset of each queue, which messages have an entry there, and which can be read."""
        found, unread = self.topics[name], self.unread(name)
        views = [view for (_, of), view in self.views.items() if of == name]
        held = {entry.place for view in views for entry in view.held if not entry.stored_ms}
        for queue, rows in enumerate(found.queues):
            for place in [(queue, offset) for offset in range(found.begin[queue], len(rows))]:
                if place not in readable | found.lost:
                    must(place not in held, "dropped, and held", name, place)
                    passed_ms = found.at(place).stored_ms
                    if not found.by_age:
                        must(place not in unread, "dropped, and unread", name, place)
                        passed_ms = max(passed_ms, found.unread_ms.get(place, 0))
                    must(passed_ms + found.keep_ms <= self.now_ms, "dropped too early", name, place, passed_ms)
                    found.lost.add(place)
        for queue, least in enumerate(begin):
            must(least >= found.begin[queue], "a queue begins earlier than it did", name, begin, found.begin)
            for view in views:
                view.dropped += max(0, least - view.next[queue])
                view.next[queue] = max(least, view.next[queue])
        found.begin, found.indexed = list(begin), indexed & found.lost
