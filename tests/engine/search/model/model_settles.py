"""The rules of Settle: all of it or nothing, and the first problem, in the order of the request, is the answer."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.engine.search.model.model_facts import DEDUP_MS, Content, Entry, Handle, Told, must
from tests.engine.search.model.model_handles import How
from tests.engine.search.model.model_stages import Stages

#: (topic, messages) of each send.
Sending = list[tuple[str, list[Content]]]


class Anything:
    """Equals every answer: a Settle does not answer how its changes ended."""

    def __eq__(self, _: object) -> bool:
        return True

    def __getitem__(self, _: int) -> str:
        return ""

    __hash__ = object.__hash__


class Settled(NamedTuple):
    """What is remembered of a numbered Settle."""

    at_ms: int
    deliveries: int
    messages: int
    told: list[Told]


class Settles(Stages):
    """Deliveries and messages in one commit."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.settled: dict[tuple[str, int], Settled] = {}

    def settle(
        self,
        group: str,
        handles: list[Handle | None],
        changes: list[tuple[Handle, How]],
        sends: Sending,
        request: tuple[str, int],
        answer: list[Told] | str,
    ) -> None:
        """`handles`: None for damaged ones. `answer`: the answer to each send, or a code."""
        if group not in self.groups:
            return must(answer == "GROUP_NOT_FOUND", "settle", answer)
        counts = len(handles) + len(changes), sum(len(contents) for _, contents in sends)
        known = self.settled.get(request)
        if known is not None and self.now_ms - known.at_ms <= DEDUP_MS:
            again = [told._replace(duplicate=True) for told in known.told]
            expected = again if (known.deliveries, known.messages) == counts else "REQUEST_NUMBER_REUSED"
            return must(answer == expected, "repeated settle", answer, expected)
        problem = next(self._problems(group, handles, changes, sends), "")
        if isinstance(answer, str) or problem:
            expected = problem or ("STORAGE_FULL" if self.full else "")
            return must(answer == expected, "settle", answer, expected)
        for (topic, contents), told in zip(sends, answer, strict=True):
            self.send(topic, contents, ("", 0), told)
        self.ack(group, [one for one in handles if one is not None], [""] * len(handles))
        self.change(group, sorted(changes, key=lambda one: one[1].kind == "release"), Anything())
        if request[0]:
            self.settled[request] = Settled(self.now_ms, *counts, answer)
        return None

    def _problems(
        self, group: str, handles: list[Handle | None], changes: list[tuple[Handle, How]], sends: Sending
    ) -> Iterator[str]:
        """The codes of all problems, in the order in which they are looked for."""
        seen: set[int] = set()
        for number, handle in enumerate([*handles, *(handle for handle, _ in changes)]):
            found: Any = self.find(group, handle) if handle else "INVALID_HANDLE"
            if isinstance(found, str):
                yield found
            elif id(found) in seen or (number >= len(handles) and self._is_owned(found)):
                yield "INVALID_FIELD"
            seen.add(id(found))
        for topic, contents in sends:
            if (known := self.topics.get(topic)) is None:
                yield "TOPIC_NOT_FOUND"
            elif any(self._is_wrong(known, content) for content in contents):
                yield "INVALID_FIELD"

    def _is_owned(self, entry: Entry) -> bool:
        return entry.lease is not None and bool(entry.lease.owner)
