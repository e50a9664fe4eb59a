"""Dead letters that an operator redrives."""

from collections import Counter
from typing import NamedTuple

from tests.engine.search.model.model_facts import DeadLetter, Entry, must
from tests.engine.search.model.model_moves import Moves


class Redriven(NamedTuple):
    """The answer of a redrive: how many of each origin, and the offsets of those that stay."""

    topics: dict[str, int]
    staying: list[int]


class DeadLetters(Moves):
    """Dead letters that are delivered again, and given-up half messages that are committed after all."""

    def redrive(self, group: str, letters: list[tuple[int, DeadLetter]], answer: Redriven | str) -> None:
        """`letters`: (offset, dead letter) of those that were asked for."""
        settings = self.groups.get(group)
        if settings is None or isinstance(answer, str):
            return must(answer == "GROUP_NOT_FOUND", "redrive", answer)
        counts: Counter[str] = Counter()
        staying = []
        entered = self.entered
        for offset, letter in letters:
            must(letter in settings.dead, "a dead letter", letter)
            origin = self.topics.get(letter.topic)
            if origin is None or origin.created_ms > letter.dead_ms:
                staying.append(offset)
                continue
            settings.dead.remove(letter)
            counts[letter.topic] += 1
            self._deliver(group, letter, entered)
        return must((answer.topics, answer.staying) == (counts, staying), "redrive", answer, counts, staying)

    def _deliver(self, group: str, letter: DeadLetter, entered: int) -> None:
        """Delivers again with attempts from 0. A message of a FIFO topic is never queued twice."""
        view, found = self.bind(group, letter.topic), self.topics[letter.topic]
        place = letter.queue, letter.offset
        in_order = found.kind == "FIFO" and view.mode == "POP"
        unread = letter.offset >= view.next[letter.queue] and found.has(place)
        comes = unread or any(entry.place == place for entry in view.held)
        if in_order and comes:
            return
        entry = Entry(place, found.at(place).message_group, "", 0, reason="redriven", stored_ms=self.now_ms)
        view.held.append(entry)
        self.come_back(view, entry, entered)
