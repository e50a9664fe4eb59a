"""The rules of lite topics: made by their first message, in order for each group, kept while needed, gone when idle.

As in model.py the answers of pops are judged and believed; a dropped message must have been allowed to be dropped.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.engine.search.model.model_facts import Handle, must


class Message(NamedTuple):
    text: str
    stored_ms: int


class DeadLetter(NamedTuple):
    """A dead letter, with its lite topic and the life of it."""

    name: str
    offset: int
    life: int


@dataclass
class Reader:
    """A group in a lite topic, from the first message that it got."""

    next: int = 0
    waiting: set[int] = field(default_factory=set)
    redriven: set[int] = field(default_factory=set)  # they have records of their own
    leased: dict[int, tuple[Handle, int]] = field(default_factory=dict)  # by offset, with their deadline

    def unfinished(self, end: int) -> bool:
        return self.next < end or bool(self.waiting or self.leased)


@dataclass
class Life:
    """A lite topic from its first message until it is removed."""

    number: int
    messages: list[Message] = field(default_factory=list)
    readers: dict[str, Reader] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    needed_ms: int = 0
    unread_ms: dict[int, int] = field(default_factory=dict)

    def unread(self, offset: int) -> bool:
        return any(offset >= reader.next for reader in self.readers.values())


class Lites:
    """All lite topics of one topic."""

    def __init__(self, now_ms: int, keep_ms: int, ttl_ms: int) -> None:
        self.now_ms, self.keep_ms, self.ttl_ms = now_ms, keep_ms, ttl_ms
        self.lives: dict[str, Life] = {}
        self.given = 0
        self.acked: dict[str, int] = {}
        self.dead: dict[str, list[DeadLetter]] = {}
        #: Messages that were dropped before the group first read their lite topic. It counts those after the first one
        #: that is left.
        self.missed: dict[str, int] = {}

    def send(self, name: str, text: str, offset: int) -> None:
        if name not in self.lives:
            self.given += 1
            self.lives[name] = Life(self.given)
        life = self.lives[name]
        must(offset == len(life.messages), "the next offset of its life", name, offset, life)
        life.messages.append(Message(text, self.now_ms))
        life.needed_ms = self.now_ms

    def deliverable(self, group: str, name: str) -> list[int]:
        """The offsets that the group may get from a lite topic now, in their order."""
        life = self.lives.get(name)
        if life is None:
            return []
        reader = life.readers.get(group, Reader())
        if reader.leased:
            return []
        unread = [offset for offset in range(reader.next, len(life.messages)) if offset not in life.lost]
        return [*sorted(reader.waiting), *unread]

    def pop(self, group: str, names: list[str], most: int, rows: list[tuple[str, int, Handle]], due_ms: int) -> None:
        """`rows`: (text, offset, handle). Each lite topic gives its first ones, and each that has any gives some."""
        by_name: dict[str, list[tuple[str, int, Handle]]] = {}
        for row in rows:
            by_name.setdefault(row[0].partition(":")[0], []).append(row)
        must(by_name.keys() <= set(names), "a lite topic that was not asked for", names, by_name)
        for name, ours in by_name.items():
            expected = self.deliverable(group, name)[: len(ours)]
            must([offset for _, offset, _ in ours] == expected, "in order, and nothing twice", name, ours, expected)
            life = self.lives[name]
            must([text for text, *_ in ours] == [life.messages[at].text for at in expected], "texts", ours)
            if group not in life.readers:
                self.missed[group] = self.missed.get(group, 0) + len(life.lost)
            reader = life.readers.setdefault(group, Reader())
            for _, offset, handle in ours:
                reader.waiting.discard(offset)
                reader.next = max(reader.next, offset + 1)
                reader.leased[offset] = handle, due_ms
        if len(rows) < most:
            left = [name for name in names if name not in by_name and self.deliverable(group, name)]
            must(not left, "messages that did not come", group, left)

    def finish(self, group: str, name: str, offset: int, how: str) -> None:
        """A lease is acked, released (with all behind it), or rejected."""
        life = self.lives[name]
        reader = life.readers[group]
        del reader.leased[offset]
        if how == "ack":
            self.acked[group] = self.acked.get(group, 0) + 1
        elif how == "reject":
            self.dead.setdefault(group, []).append(DeadLetter(name, offset, life.number))
        if how != "release":
            reader.redriven.discard(offset)
            return
        behind = [other for other in reader.leased if other > offset]
        reader.waiting |= {offset, *behind}
        for other in behind:
            del reader.leased[other]

    def redrive(self, group: str) -> int:
        """Dead letters of lite topics that are there still go back into them; how many stay."""
        staying = []
        for letter in self.dead.get(group, []):
            life = self.lives.get(letter.name)
            if life is None or life.number != letter.life:
                staying.append(letter)
            else:
                life.readers[group].waiting.add(letter.offset)
                life.readers[group].redriven.add(letter.offset)
        self.dead[group] = staying
        return len(staying)

    def forget_all(self) -> None:
        """The topic is purged."""
        self.lives.clear()

    def forget_topic(self) -> None:
        """The topic is deleted: the numbers of its groups begin anew, and their dead letters stay."""
        self.forget_all()
        self.acked.clear()
        self.missed.clear()

    def forget_group(self, group: str) -> None:
        """The group is deleted, with its dead letters."""
        for life in self.lives.values():
            life.readers.pop(group, None)
        for numbers in (self.acked, self.missed, self.dead):
            numbers.pop(group, None)

    def pass_time(self, ms: int) -> None:
        """Notes the time for each lite topic that is needed or unread."""
        self.now_ms += ms
        for life in self.lives.values():
            end = len(life.messages)
            if any(reader.unfinished(end) for reader in life.readers.values()):
                life.needed_ms = self.now_ms
            life.unread_ms |= {offset: self.now_ms for offset in range(end) if life.unread(offset)}

    def timed(self) -> None:
        """Ends the leases that are due."""
        for life in self.lives.values():
            for reader in life.readers.values():
                over = [offset for offset, (_, due_ms) in reader.leased.items() if due_ms <= self.now_ms]
                reader.waiting |= set(over)
                for offset in over:
                    del reader.leased[offset]

    def learn(self, readable: dict[str, set[int]]) -> None:
        """Learns which lite topics exist, and which offsets of each can be read."""
        must(readable.keys() <= self.lives.keys(), "a lite topic that nobody made", readable, self.lives)
        for name in self.lives.keys() - readable.keys():
            life = self.lives.pop(name)
            needed = any(reader.unfinished(len(life.messages)) for reader in life.readers.values())
            must(not needed, "removed, and needed", name, life)
            must(life.needed_ms + self.ttl_ms <= self.now_ms, "removed too early", name, life, self.now_ms)
        for name, offsets in readable.items():
            self._learn_lost(name, self.lives[name], offsets)

    def _learn_lost(self, name: str, life: Life, offsets: set[int]) -> None:
        """Messages go keep_ms after every reader has passed them, and never while one holds them."""
        held = {
            offset for reader in life.readers.values() for offset in {*reader.waiting, *reader.leased} - reader.redriven
        }
        for offset in set(range(len(life.messages))) - offsets - life.lost:
            must(offset not in held and not life.unread(offset), "dropped, and not finished", name, offset, life)
            passed_ms = max(life.messages[offset].stored_ms, life.unread_ms.get(offset, 0))
            must(passed_ms + self.keep_ms <= self.now_ms, "dropped too early", name, offset, life)
            life.lost.add(offset)

    def leases(self, group: str) -> list[tuple[str, int, Handle]]:
        """(name, offset, handle) of what a group has leased, in their order."""
        return [
            (name, offset, reader.leased[offset][0])
            for name, life in sorted(self.lives.items())
            if (reader := life.readers.get(group)) is not None
            for offset in sorted(reader.leased)
        ]
