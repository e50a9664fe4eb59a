"""The rules of topics, groups and filters: what exists, where a group begins, and what it wants."""

from collections.abc import Callable

from tests.engine.search.model.model_facts import EVERYTHING, Filter, Group, Half, Stored, Topic, Turns, View, must
from tests.engine.search.model.model_facts import Delayed as DelayedMessage

#: What the filters of the machine say, by kind and text.
FILTERS: dict[tuple[str, str], Filter] = {
    ("", ""): EVERYTHING,
    ("tag", "*"): EVERYTHING,
    ("tag", "red"): Filter("red", lambda content: content.tag == "red", True),
    ("tag", " red||red "): Filter("red", lambda content: content.tag == "red", True),
    ("tag", "red || blue"): Filter("red, blue", lambda content: content.tag in ("red", "blue"), True),
    ("sql92", "n > 1"): Filter("n > 1", lambda content: (content.number or 0) > 1),
    ("sql92", "TAGS = 'red' OR n IS NULL"): Filter(
        "red or no n", lambda content: content.tag == "red" or content.number is None
    ),
}


class Topics:
    """All topics and groups."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.wall_ahead_ms = 0
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.views: dict[tuple[str, str], View] = {}
        self.delayed: dict[str, DelayedMessage] = {}
        self.halves: dict[str, Half] = {}
        self.numbers_given = 0
        self.deleted_ms = 0  # the latest creation of a deleted topic: one that is created again is later

    def create_topic(self, name: str, kind: str, queues: int, unique_ms: int, keep_ms: int = 0) -> str:
        found = self.topics.get(name)
        if found is not None:
            now = (found.kind, len(found.queues), found.unique_ms, found.by_age, found.keep_ms)
            return "" if now == (kind, queues, unique_ms, False, keep_ms) else "ALREADY_EXISTS"
        self.numbers_given += 1
        made: list[list[Stored]] = [[] for _ in range(queues)]
        created_ms = max(self.now_ms, self.deleted_ms + 1)
        made_topic = Topic(self.numbers_given, kind, made, unique_ms, created_ms, [0] * queues)
        made_topic.keep_ms = keep_ms
        self.topics[name] = made_topic
        return ""

    def grow_topic(self, name: str, queues: int) -> str:
        topic = self.topics.get(name)
        if topic is None:
            return "TOPIC_NOT_FOUND"
        if queues < len(topic.queues) or (topic.kind == "FIFO" and queues != len(topic.queues)):
            return "INVALID_FIELD"
        more = queues - len(topic.queues)
        topic.queues += [[] for _ in range(more)]
        topic.begin += [0] * more
        for (_, of), view in self.views.items():
            if of == name:
                view.next += [0] * more
        return ""

    def delete_topic(self, name: str) -> str:
        topic = self.topics.pop(name, None)
        if topic is None:
            return "TOPIC_NOT_FOUND"
        self.deleted_ms = max(self.deleted_ms, topic.created_ms)
        self._forget(lambda group, topic: topic == name)
        self._forget_waiting(name)
        for settings in self.groups.values():
            for owner in settings.owners.values():
                owner.tokens = {key: token for key, token in owner.tokens.items() if key[0] != name}
        return ""

    def _forget_waiting(self, name: str) -> None:
        """Drops the delayed and half messages of a topic with it."""
        self.delayed = {handle: one for handle, one in self.delayed.items() if one.topic != name}
        self.halves = {key: half for key, half in self.halves.items() if half.topic != name}

    def purge_topic(self, name: str, answer: tuple[int, int] | str) -> None:
        """Drops all messages; groups are at the ends of the queues, and sealed sets stay sealed."""
        found = self.topics.get(name)
        if found is None:
            return must(answer == "TOPIC_NOT_FOUND", "purge", answer)
        ends = list(map(len, found.queues))
        waiting = [one.topic for one in self.delayed.values()] + [one.topic for one in self.halves.values()]
        must(answer[0] == sum(ends) - sum(found.begin) + waiting.count(name), "purge", answer, waiting)
        self.numbers_given += 1
        found.number, found.begin, found.ids = self.numbers_given, ends, {}
        found.lost, found.indexed = set(), set()
        self._forget_waiting(name)
        for (_, of), view in self.views.items():
            if of == name:
                view.next, view.turns = list(ends), Turns()
                for entry in list(view.held):
                    view.over(entry, "void")
        for settings in self.groups.values():
            for key, token in settings.tokens():
                if key[0] == name and token.lease is not None:
                    token.lease, token.lost = None, True
        return None

    def create_group(self, name: str, group: Group) -> str:
        found = self.groups.get(name)
        if found is not None:
            return "" if found.settings == group.settings else "ALREADY_EXISTS"
        self.groups[name] = group
        return ""

    def change_group(self, name: str, max_attempts: int, exclusive: bool, stops: bool) -> str:
        group = self.groups.get(name)
        if group is None:
            return "GROUP_NOT_FOUND"
        if group.exclusive and not exclusive:
            for owner in group.owners.values():
                owner.released = False
        group.max_attempts, group.exclusive, group.stops = max_attempts, exclusive, stops
        return ""

    def delete_group(self, name: str) -> str:
        if self.groups.pop(name, None) is None:
            return "GROUP_NOT_FOUND"
        self._forget(lambda group, topic: group == name)
        return ""

    def _forget(self, which: Callable[[str, str], bool]) -> None:
        self.views = {key: view for key, view in self.views.items() if not which(*key)}

    def bind(self, group: str, topic: str, start: tuple[str, int] | None = None) -> View:
        """A group starts where it is set to when it first names a topic."""
        view = self.views.get((group, topic))
        if view is None:
            view = View(self.starts_of(topic, *(start or self.groups[group].start)))
            self.views[(group, topic)] = view
        return view

    def starts_of(self, topic: str, kind: str, since_ms: int) -> list[int]:
        """The offset of each queue that a group begins at."""
        found = self.topics[topic]
        if kind == "TIMESTAMP":
            before = (sum(1 for message in queue if message.stored_ms < since_ms) for queue in found.queues)
            return list(map(max, found.begin, before))
        return list(found.begin) if kind == "EARLIEST" else list(map(len, found.queues))

    def unresolved(self, topic: str, group: str) -> str:
        """The code of a request that names what does not exist."""
        if topic not in self.topics:
            return "TOPIC_NOT_FOUND"
        return "" if group in self.groups else "GROUP_NOT_FOUND"

    # ── Filters ──────────────────────────────────────────────────────────────────────────────────────────────────

    def conflicts(self, topic: str, group: str, wanted: tuple[str, str] | None) -> bool:
        view = self.views.get((group, topic))
        fixed = view.filter if view else None
        return bool(wanted) and fixed is not None and FILTERS[wanted or ("", "")].normal != fixed.normal

    def subscribe(self, view: View, wanted: tuple[str, str] | None) -> None:
        """The first read of a group fixes its filter."""
        if view.filter is None:
            view.filter = FILTERS[wanted or ("", "")]

    def set_filter(self, topic: str, group: str, wanted: tuple[str, str], answer: str) -> None:
        refused = self.unresolved(topic, group)
        must(answer == refused, "set filter", answer, refused)
        if not refused:
            self.bind(group, topic).filter = FILTERS[wanted]
