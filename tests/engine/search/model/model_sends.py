"""The rules of sending: where a message goes by the type of its topic, what is not visible yet, and what ends it.

visible     at the end of a queue: of its message group, of its priority, or of the request's turn
delayed     until both clocks (a time) or our own (a delay) have reached its time, then visible, in the order of that
half        until its transaction is committed (then visible or delayed), rolled back, or given up
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from popmq_server.contract.commands import Rescheduled
from tests.engine.search.model.model_facts import (
    CHECK_EVERY_MS,
    CHECKS_MAX,
    DEDUP_MS,
    ENDED_KEEP_MS,
    FIRST_CHECK_MS,
    HALF_KEEP_MS,
    HALF_LOOK_MS,
    Content,
    Delayed,
    Half,
    Place,
    Postponed,
    Stored,
    Told,
    Topic,
    Where,
    must,
)
from tests.engine.search.model.model_kept import Kept


class Request(NamedTuple):
    """A numbered request, and how it was answered."""

    sent_ms: int
    topic: int
    messages: int
    told: Told


class Ended(NamedTuple):
    """How a transaction ended."""

    commit: bool
    at_ms: int
    told: tuple[str, Where]


class Sends(Kept):
    """Sends, delayed messages and transactions."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.requests: dict[tuple[str, int], Request] = {}
        self.recall_topics: dict[str, int] = {}
        self.ended: dict[str, Ended] = {}
        self.given_up: list[tuple[str, str, int]] = []
        self.listened: frozenset[str] = frozenset()
        self.listens_anew = False
        self.orders = 0
        self.postponed = Postponed()
        #: The delayed messages that the judged commit moved, perhaps into the past. Its jobs ran only if something had
        #: been due before it: else the next commit makes these visible, at once.
        self.moved: set[str] = set()
        #: The batch that is judged met a full disk; CheckPoint, part → members whose dead letters then had no room.
        self.full = False
        self.blocked: dict[tuple[int, int], int] = {}
        #: CheckPoint, part of the leases that were passed over for it.
        self.without_room: set[tuple[int, int]] = set()

    def _order(self) -> int:
        self.orders += 1
        return self.orders

    # ── Send ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, topic: str, contents: list[Content], request: tuple[str, int], answer: Told | str) -> None:
        found = self.topics.get(topic)
        if found is None or isinstance(answer, str):
            refused = self._refused_send(found, request, len(contents))
            return must(answer == refused, "send", answer, refused)
        seen = self._seen(request)
        if seen is not None:
            return must(answer == seen.told._replace(duplicate=True), "repeated send", seen, answer)
        must(not answer.duplicate, "a first send is no duplicate")
        if not contents:
            return None
        places = answer.places
        if self._is_plain(found, contents):
            must(places is None, "plain messages follow each other", answer)
            places = [Where(answer.queue, answer.first + step) for step in range(len(contents))]
        assert places is not None
        must(len(places) == len(contents), "an answer for each message", answer)
        self._judge_places(topic, found, contents, places)
        if request[0]:
            self.requests[request] = Request(self.now_ms, found.number, len(contents), answer)
        return None

    def _refused_send(self, found: Topic | None, request: tuple[str, int], count: int) -> str:
        if found is None:
            return "TOPIC_NOT_FOUND"
        seen = self._seen(request)
        return "REQUEST_NUMBER_REUSED" if seen and (seen.topic, seen.messages) != (found.number, count) else ""

    def _seen(self, request: tuple[str, int]) -> Request | None:
        seen = self.requests.get(request) if request[0] else None
        if seen is None or self.now_ms - seen.sent_ms > DEDUP_MS:
            return None
        return seen if any(topic.number == seen.topic for topic in self.topics.values()) else None

    def _is_plain(self, found: Topic, contents: list[Content]) -> bool:
        if found.kind in ("FIFO", "PRIORITY") or found.unique_ms:
            return False
        return not any(
            (one.message_group, one.priority, one.due_ms, one.delay_ms, one.half, one.ttl_ms) != ("", 0, 0, 0, False, 0)
            for one in contents
        )

    def _judge_places(self, topic: str, found: Topic, contents: list[Content], places: list[Where | str]) -> None:
        """Each message of a request: refused, known, kept, or visible."""
        first: dict[str, int] = {}
        queue: set[int] = set()
        for number, (content, place) in enumerate(zip(contents, places, strict=True)):
            if self._is_wrong(found, content):
                must(place == "INVALID_FIELD", "not for a topic of this type", found.kind, content, place)
                continue
            if found.unique_ms and first.setdefault(content.name, number) != number:
                stored = places[first[content.name]]
                same = stored._replace(duplicate=True) if isinstance(stored, Where) else stored
                must(place == same, "twice in one request", content, place, stored)
                continue
            known = self._known(found, content)
            if known is not None:
                must(place == known._replace(duplicate=True), "a known id", content, place, known)
                continue
            assert isinstance(place, Where), ("stored", content, place)
            must(not place.duplicate, "a new id", content, place)
            self._keep_or_store(topic, found, content, place)
            if not (place.recall or place.transaction):
                queue.add(place.queue)
        must(found.kind in ("FIFO", "PRIORITY") or len(queue) <= 1, "one queue for a request", queue)

    def _is_wrong(self, found: Topic, content: Content) -> bool:
        if bool(content.message_group) != (found.kind == "FIFO"):
            return True
        if content.priority and found.kind != "PRIORITY":
            return True
        return found.kind == "NORMAL" and bool(content.due_ms or content.delay_ms or content.half)

    def _known(self, found: Topic, content: Content) -> Where | None:
        if not found.unique_ms or content.name not in found.ids:
            return None
        stored_ms, where = found.ids[content.name]
        return where if stored_ms > self.now_ms - found.unique_ms else None

    def _keep_or_store(self, topic: str, found: Topic, content: Content, where: Where) -> None:
        """A message that is taken: as a half message, as a delayed one, or into its queue."""
        if content.half:
            must(bool(where.transaction) and where.transaction not in self.halves, "a half message", where)
            self.halves[where.transaction] = Half(
                topic, content, where.transaction, self._order(), self.now_ms, self.now_ms + FIRST_CHECK_MS
            )
        else:
            self._schedule_or_store(topic, found, content, where)
        found.ids[content.name] = self.now_ms, where

    def _schedule_or_store(self, topic: str, found: Topic, content: Content, where: Where) -> None:
        by_wall = bool(content.due_ms)
        due_ms = content.due_ms or (self.now_ms + content.delay_ms if content.delay_ms else 0)
        if due_ms > self.reached_ms(by_wall):
            must(bool(where.recall) and where.recall not in self.recall_topics, "a delayed message", where)
            self.delayed[where.recall] = Delayed(topic, content, due_ms, by_wall, self._order(), where.recall)
            self.recall_topics[where.recall] = found.number
        else:
            must(where[2:4] == ("", ""), "a visible message", content, where)
            self._store(found, content, (where.queue, where.offset))

    def _store(self, found: Topic, content: Content, place: Place) -> None:
        """A message at the end of the queue where it belongs."""
        must(0 <= place[0] < len(found.queues), "a queue of the topic", place)
        queue = found.queues[place[0]]
        must(place[1] == len(queue), "at the end of its queue", content, place, len(queue))
        if found.kind == "FIFO":
            home = found.homes.setdefault(content.message_group, place[0])
            must(home == place[0], "a message group has one queue", content, place, home)
        if found.kind == "PRIORITY":
            must(place[0] == min(content.priority, len(found.queues) - 1), "queue of a priority", content, place)
        queue.append(Stored(content, self.now_ms))

    # ── Delayed messages ─────────────────────────────────────────────────────────────────────────────────────────

    def reached_ms(self, by_wall: bool) -> int:
        """The broker's time; with `by_wall` the earlier one of it and the wall clock, which counts for named times."""
        return self.now_ms + min(0, self.wall_ahead_ms if by_wall else 0)

    def ripe(self) -> list[Delayed]:
        """The due delayed messages, in the order in which they become visible."""
        if self.now_ms < self.postponed.delayed_ms:
            return []
        found = (one for one in self.delayed.values() if one.due_ms <= self.reached_ms(one.by_wall))
        return sorted(found, key=lambda one: (one.due_ms, one.order))

    def fire(self, places: dict[str, Place]) -> bool:
        """The due messages, and no others, became visible at these places."""
        ripe = [one for one in self.ripe() if one.handle not in self.moved or one.content.text in places]
        self.moved.clear()
        for one in ripe:
            must(one.content.text in places, "due and not fired", one)
            self._store(self.topics[one.topic], one.content, places[one.content.text])
            del self.delayed[one.handle]
        return bool(ripe)

    def recall(self, topic: str, handle: str, answer: str) -> None:
        """`answer`: the message id, or a code."""
        if (one := self._taken_back(topic, handle, answer)) is not None:
            self._free(self.topics[topic], one.content.name, handle)
            must(answer == one.content.name, "recall", answer, one)

    def reschedule(self, topic: str, handle: str, time: tuple[int, int], answer: Rescheduled | str) -> None:
        """`time`: due ms, or ms from now. `answer`: or a code."""
        one = self._taken_back(topic, handle, answer)
        if one is not None and self.full and answer == "STORAGE_FULL":  # its row is put again, which needs room
            self.delayed[handle] = one
            return
        if one is None or isinstance(answer, str):
            must(one is None, "a delayed message that was not moved", answer, one)
            return
        due_ms = time[0] or self.now_ms + time[1]
        must(answer == (one.content.name, answer.handle, due_ms), "reschedule", answer, one)
        must(answer.handle not in self.recall_topics, "another handle", answer)
        found, content = self.topics[topic], one.content
        self.delayed[answer.handle] = Delayed(topic, content, due_ms, bool(time[0]), self._order(), answer.handle)
        self.recall_topics[answer.handle] = found.number
        self.moved.add(answer.handle)
        stored_ms, where = found.ids.get(content.name, (0, Where()))
        if where.recall == handle:
            found.ids[content.name] = stored_ms, where._replace(recall=answer.handle)

    def _taken_back(self, topic: str, handle: str, answer: object) -> Delayed | None:
        """The delayed message of a handle, which waits no longer; None: the answer has to be a refusal, and is."""
        found = self.topics.get(topic)
        if found is None:
            must(answer == "TOPIC_NOT_FOUND", "recall", answer)
            return None
        other = [one.number for one in self.topics.values() if one is not found]
        if self.recall_topics.get(handle) in other:
            must(answer == "INVALID_FIELD", "recall from another topic", answer)
            return None
        one = self.delayed.pop(handle, None)
        must(one is not None or answer == "MESSAGE_NOT_FOUND", "recall of what is gone", answer)
        return one

    def _free(self, found: Topic, name: str, thing: str) -> None:
        """A message that will never be visible frees its unique id."""
        if name in found.ids and thing in found.ids[name][1][2:4]:
            del found.ids[name]

    # ── Transactions ─────────────────────────────────────────────────────────────────────────────────────────────

    def end(self, ends: list[tuple[str, bool]], answers: list[Any]) -> None:
        """`ends`: (transaction, commit). `answers`: (message id, Where) or a code."""
        must(len(ends) == len(answers), "an answer for each end", answers)
        for (name, commit), answer in zip(ends, answers, strict=True):
            half = self.halves.get(name)
            if half is None:
                expected = self._ended_before(name, commit)
                must(answer == expected, "repeated end", name, commit, answer, expected)
            else:
                self._end(half, commit, answer)

    def _ended_before(self, name: str, commit: bool) -> tuple[str, Where] | str:
        known = self.ended.get(name)
        if known is None or self.now_ms - known.at_ms >= ENDED_KEEP_MS:
            return "TRANSACTION_NOT_FOUND"
        return known.told if known.commit == commit else "TRANSACTION_ENDED"

    def _end(self, half: Half, commit: bool, answer: Any) -> None:
        must(isinstance(answer, tuple) and answer[0] == half.content.name, "end", half, answer)
        found, where = self.topics[half.topic], answer[1]
        del self.halves[half.name]
        if commit:
            must(not where.transaction, "a committed message is no half message", where)
            self._schedule_or_store(half.topic, found, half.content._replace(half=False), where)
            stored_ms, known = found.ids.get(half.content.name, (0, where))
            if known.transaction == half.name:  # the time of its id counts from its Send
                found.ids[half.content.name] = stored_ms, where
        else:
            must(where == Where(), "a message that was rolled back is nowhere", where)
            self._free(found, half.content.name, half.name)
        self.ended[half.name] = Ended(commit, self.now_ms, answer)

    def listen(self, topics: frozenset[str]) -> None:
        """A producer that has just joined is asked at once, or in the next commit."""
        self.listens_anew |= topics != self.listened
        self.listened = topics

    def check(self, handed: set[tuple[str, int]], old: Sequence[tuple[str, str]]) -> bool:
        """These check-backs were sent to producers that can answer; messages asked about too often are given up.

        `old`: what was given up for its age, by topic and message id.
        """
        for topic, name in old:
            self._give_up_old(topic, name)
        if self.now_ms < self.postponed.checks_ms:
            return bool(old)
        late = [half for half in self.halves.values() if half.stored_ms + HALF_KEEP_MS + HALF_LOOK_MS <= self.now_ms]
        must(not late, "not given up at its age", late)
        due = [half for half in self.halves.values() if half.next_ms <= self.now_ms]
        asked = [half for half in due if half.checks < CHECKS_MAX and half.topic in self.listened]
        if self.listens_anew and not handed:
            asked = []
        self.listens_anew = False
        must(handed == {(half.name, half.checks + 1) for half in asked}, "checks", handed, asked)
        for half in asked:
            half.next_ms = self.now_ms + CHECK_EVERY_MS
        lost = [half for half in due if half.checks >= CHECKS_MAX]
        for half in lost:
            self.given_up.append((half.content.text, half.topic, half.checks))
            del self.halves[half.name]
        return bool(asked or lost or old)

    def _give_up_old(self, topic: str, name: str) -> None:
        """Of several half messages with one id the oldest is given up first."""
        named = (half for half in self.halves.values() if (half.topic, half.content.name) == (topic, name))
        half = min(named, key=lambda one: (one.stored_ms, one.order), default=None)
        must(half is not None and half.stored_ms + HALF_KEEP_MS <= self.now_ms, "given up too early", topic, name, half)
        assert half is not None
        self.given_up.append((half.content.text, half.topic, half.checks))
        del self.halves[half.name]

    def count_checks(self, counted: list[tuple[str, int]]) -> None:
        """Only checks that reached a live producer count, each once."""
        for name, number in counted:
            half = self.halves.get(name)
            if half is not None and half.checks == number - 1 < CHECKS_MAX:
                half.checks = number
