"""The rules of reading by queue and offset, of consume modes, and of an operator who moves a group.

A group that pulls may send back a message before committing it: the message is then in its queue and the retry topic.
"""

from typing import Any, NamedTuple

from tests.engine.search.model.model_facts import EVERYTHING, Entry, Filter, Place, RetryRow, Stored, Topic, View, must
from tests.engine.search.model.model_owners import Owners
from tests.engine.search.model.model_topics import FILTERS


class Pulled(NamedTuple):
    """The answer of a pull; rows: (text, queue, offset, attempt)."""

    status: str
    rows: list[tuple[str, int, int, int]]
    next_offset: int
    more: bool
    acked: int


class Asked(NamedTuple):
    """What a pull asks for."""

    queue: int
    offset: int
    messages: int
    bytes: int
    wanted: tuple[str, str] | None
    commit: int | None


class SentBack(NamedTuple):
    """One failed message, named by its place or by its number in the retry topic."""

    queue: int
    offset: int
    retry: bool
    delay_ms: int | None
    reason: str
    reject: bool


class Moves(Owners):
    """Everything that moves a group without a lease."""

    # ── An operator ──────────────────────────────────────────────────────────────────────────────────────────────

    def reset(
        self, topic: str, group: str, to: tuple[str, int] | None, offsets: dict[int, int] | None, answer: Any
    ) -> None:
        """`answer`: the next offset of each queue, or a code."""
        wanted = dict(offsets or {})
        refused = self.unresolved(topic, group) or self._refused_offsets(self.topics[topic], wanted)
        if not refused and any(offset < self.topics[topic].begin[queue] for queue, offset in wanted.items()):
            refused = "INVALID_FIELD"
        if refused:
            return must(answer == refused, "reset", answer, refused)
        view = self.bind(group, topic, to)
        if to is not None:
            wanted = dict(enumerate(self.starts_of(topic, *to)))
        self._move(self.topics[topic], view, wanted, skips=to is not None and to[0] == "LATEST")
        return must(answer == dict(enumerate(view.next)), "reset", answer, view.next)

    def clone(self, topic: str, source: str, group: str, answer: Any) -> None:
        refused = self.unresolved(topic, group) or self.unresolved(topic, source)
        if not refused and (source, topic) not in self.views:
            refused = "INVALID_FIELD"
        if refused:
            return must(answer == refused, "clone", answer, refused)
        view = self.bind(group, topic)
        self._move(self.topics[topic], view, dict(enumerate(self.views[(source, topic)].next)))
        return must(answer == dict(enumerate(view.next)), "clone", answer, view.next)

    def _refused_offsets(self, found: Topic, offsets: dict[int, int]) -> str:
        beyond = (queue >= len(found.queues) or offset > len(found.queues[queue]) for queue, offset in offsets.items())
        return "INVALID_FIELD" if any(beyond) else ""

    def _move(self, found: Topic, view: View, wanted: dict[int, int], skips: bool = False) -> None:
        """Moves the group there; it loses the leases and retries of these queues.

        But a redriven message that its queue has no more stays, unless the group was moved past it.
        """
        entered = self.entered
        for queue, offset in wanted.items():
            view.next[queue] = offset
        for entry in [one for one in view.held if one.place[0] in wanted]:
            offset = wanted[entry.place[0]]
            everything = offset <= found.begin[entry.place[0]] and not skips
            self._void(found, view, entry, entered, kept=everything or entry.place[1] >= offset)

    def _void(self, found: Topic, view: View, entry: Entry, entered: int, kept: bool = True) -> None:
        """Removes the leases and retries of a group. `kept`: redriven messages stay if no queue can deliver them."""
        self._disown(entry)
        if not kept or not entry.stored_ms or found.has(entry.place):
            view.over(entry, "void")
        elif entry.state not in ("retry", "waiting"):
            self.come_back(view, entry, entered)

    def _disown(self, entry: Entry) -> None:
        """An owner loses a message for good; its token counts it."""
        lease = entry.lease
        owner = self.groups[lease.group].owners.get(lease.owner) if lease else None
        for token in owner.tokens.values() if owner else ():
            if entry.tied is token or (entry.state == "bound" and token.lease is lease):
                token.stolen += 1
        entry.tied = None

    # ── Consume modes ────────────────────────────────────────────────────────────────────────────────────────────

    def set_mode(self, topic: str, group: str, mode: str, answer: str) -> None:
        refused = self.unresolved(topic, group)
        must(answer == refused, "set consume mode", answer, refused)
        if refused:
            return
        view = self.bind(group, topic)
        if mode == view.mode:
            return
        view.mode, view.pulled = mode, view.pulled or mode == "PULL"
        if mode == "PULL":
            self._to_pull(view)
        else:
            self._to_pop(self.topics[topic], view)

    def _to_pull(self, view: View) -> None:
        """Leased and waiting messages go to the retry topic."""
        entered = self.entered
        for entry in list(view.held):
            self._disown(entry)
            if entry.state in ("leased", "bound", "waiting") or (entry.state == "backoff" and entry.message_group):
                self.come_back(view, entry, entered)

    def _to_pop(self, found: Topic, view: View) -> None:
        """A message that was sent back and not committed comes from its queue."""
        entered = self.entered
        for entry in view.of("retry", "backoff"):
            if entry.place[1] >= view.next[entry.place[0]]:
                self._void(found, view, entry, entered)
        in_order = found.kind == "FIFO"
        for entry in sorted(view.of("retry"), key=lambda one: (one.entered, one.number)) if in_order else ():
            self.come_back(view, entry, 0)

    def _refused_pull(self, topic: str, group: str) -> str:
        refused = self.unresolved(topic, group)
        view = self.views.get((group, topic))
        return refused or ("" if view and view.mode == "PULL" else "WRONG_CONSUME_MODE")

    # ── Offsets ──────────────────────────────────────────────────────────────────────────────────────────────────

    def update(self, topic: str, group: str, offsets: dict[int, int], answer: Any) -> None:
        """`answer`: messages moved past, or a code."""
        refused = self._refused_pull(topic, group) or self._refused_offsets(self.topics[topic], offsets)
        if refused:
            return must(answer == refused, "update offsets", answer, refused)
        view = self.views[(group, topic)]
        found = self.topics[topic]
        acked = sum(self._commit(found, view, queue, offset) for queue, offset in offsets.items())
        return must(answer == acked, "update offsets", answer, acked)

    def _commit(self, found: Topic, view: View, queue: int, offset: int) -> int:
        """A forward commit counts as acked; after a backward one the messages are read again."""
        offset = max(offset, found.begin[queue])
        acked = max(0, offset - view.next[queue])
        view.next[queue] = offset
        view.acked += acked
        return acked

    def query(self, topic: str, group: str, since_ms: int | None, answer: Any) -> None:
        """`answer`: (queue, first, next, committed, at the time) of each queue, or a code; -1 = none, not asked."""
        refused = self.unresolved(topic, group)
        if refused:
            return must(answer == refused, "query offsets", answer, refused)
        found, view = self.topics[topic], self.views.get((group, topic))
        at = [-1] * len(found.queues) if since_ms is None else self.starts_of(topic, "TIMESTAMP", since_ms)
        committed = view.next if view else [-1] * len(found.queues)
        expected = list(zip(range(len(at)), found.begin, map(len, found.queues), committed, at, strict=True))
        return must(answer == expected, "query offsets", answer, expected)

    def update_retry(self, topic: str, group: str, number: int, answer: Any) -> None:
        """Entries of the retry topic below a number are done."""
        refused = self._refused_pull(topic, group) or ("INVALID_FIELD" if number > self.entered else "")
        if refused:
            return must(answer == refused, "update of a retry topic", answer, refused)
        acked = self._commit_entries(self.views[(group, topic)], number)
        return must(answer == acked, "update of a retry topic", answer, acked)

    def _commit_entries(self, view: View, number: int) -> int:
        done = [entry for entry in view.of("retry") if entry.number < number]
        for entry in done:
            view.over(entry, "done")
        view.acked += len(done)
        return len(done)

    def learn_numbers(self, topic: str, group: str, rows: list[RetryRow]) -> None:
        """The numbers of a retry topic, in their order; the model knows all of it but the order within a step."""
        view = self.views[(group, topic)]
        found, left, last = self.topics[topic], view.of("retry"), 0
        must(len(left) == len(rows), "retry topic", left, rows)
        for row in rows:
            alike = [one for one in left if (self.record(found, one), one.attempts) == (row.record, row.attempts)]
            known = [one for one in alike if one.number == row.number] or [one for one in alike if not one.number]
            must(bool(known), "an entry from nowhere", row, left)
            entry = min(known, key=lambda one: one.entered)
            must(last <= entry.entered <= row.number, "the order of the retry topic", row, entry)
            entry.number, last = row.number, entry.entered
            left.remove(entry)

    # ── Pull ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def pull(self, topic: str, group: str, asked: Asked, answer: Pulled | str) -> None:
        """A queue of a topic. `group` "": a reader without one."""
        refused = self._refused_read(topic, group, asked)
        if refused or isinstance(answer, str):
            return must(answer == refused, "pull", answer, refused)
        view = self.views.get((group, topic))
        if view is not None and view.mode == "PULL":
            self.subscribe(view, asked.wanted)
        if view is not None and asked.commit is not None:
            acked = self._commit(self.topics[topic], view, asked.queue, asked.commit)
            must(answer.acked == acked, "commit of a pull", answer, acked)
        return self._judge_pull(self.topics[topic], self._filter(view, asked), asked, answer)

    def _filter(self, view: View | None, asked: Asked) -> Filter:
        if view is not None and view.filter is not None:
            return view.filter
        return FILTERS[asked.wanted] if asked.wanted else EVERYTHING

    def _refused_read(self, topic: str, group: str, asked: Asked) -> str:
        if topic not in self.topics:
            return "TOPIC_NOT_FOUND"
        if group and group not in self.groups:
            return "GROUP_NOT_FOUND"
        if group and (refused := self._refused_pull(topic, group)):
            return refused
        if self.conflicts(topic, group, asked.wanted):
            return "FILTER_CONFLICT"
        if asked.commit is None:
            return ""
        if not group:
            return "INVALID_FIELD"
        return self._refused_offsets(self.topics[topic], {asked.queue: asked.commit})

    def _judge_pull(self, found: Topic, wanted: Filter, asked: Asked, answer: Pulled) -> None:
        if asked.queue >= len(found.queues):
            return must(answer[:3] == ("NO_MATCHED_LOGIC_QUEUE", [], 0), "pull", answer)
        queue = found.queues[asked.queue]
        if not queue:
            return must(answer[:3] == ("NO_MESSAGE_IN_QUEUE", [], 0), "pull", answer)
        if asked.offset < found.begin[asked.queue]:
            return must(answer[:3] == ("OFFSET_TOO_SMALL", [], found.begin[asked.queue]), "pull", answer)
        if asked.offset >= len(queue):
            status = "OFFSET_OVERFLOW_ONE" if asked.offset == len(queue) else "OFFSET_OVERFLOW_BADLY"
            return must(answer[:3] == (status, [], len(queue)), "pull", answer)
        fits = [one for one in range(asked.offset, len(queue)) if wanted.passes(queue[one].content)]
        taken = fits[: len(answer.rows)]
        rows = [(queue[one].content.text, asked.queue, one, 1) for one in taken]
        must(answer.rows == rows, "pulled in order, all that is wanted", answer, rows)
        must(answer.status == ("FOUND" if rows else "NO_MATCHED_MESSAGE"), "status", answer)
        must(answer.more == (answer.next_offset < len(queue)), "more", answer)
        behind = fits[len(taken)] if len(fits) > len(taken) else len(queue)
        must((taken[-1] if taken else asked.offset - 1) < answer.next_offset <= behind, "next offset", answer, behind)
        self._judge_end_of_pull(queue, asked, answer, taken, fits)
        return None

    def _judge_end_of_pull(
        self, queue: list[Stored], asked: Asked, answer: Pulled, taken: list[int], fits: list[int]
    ) -> None:
        """A pull may be short only at the end of the queue, or if the next message did not fit."""
        used = sum(queue[one].size for one in taken)
        must(len(taken) <= asked.messages and (used <= asked.bytes or len(taken) == 1), "too much", answer)
        if len(taken) < asked.messages and answer.next_offset < len(queue):
            must(bool(taken) and used + queue[answer.next_offset].size > asked.bytes, "short", answer, fits)

    def pull_retry(self, topic: str, group: str, asked: Asked, answer: Pulled | str) -> None:
        """A retry topic, whose numbers were learned right before."""
        refused = self._refused_pull(topic, group)
        if refused or isinstance(answer, str):
            return must(answer == refused, "pull of a retry topic", answer, refused)
        view = self.views[(group, topic)]
        self.subscribe(view, asked.wanted)
        wanted, found = self._filter(view, asked), self.topics[topic]
        entries = sorted((one for one in view.of("retry") if one.number >= asked.offset), key=lambda one: one.number)
        fits = [one for one in entries if wanted.passes(found.at(one.place).content)]
        rows = [(found.at(one.place).content.text, 0, one.number, one.attempts + 1) for one in fits]
        must(answer.rows == rows[: len(answer.rows)], "pulled retries", answer, rows)
        must(len(answer.rows) == min(len(rows), asked.messages), "all that fit", answer, rows)
        if answer.rows:
            must(answer.next_offset > answer.rows[-1][2], "next offset", answer)
        return None

    # ── Send-back ────────────────────────────────────────────────────────────────────────────────────────────────

    def send_back(self, topic: str, group: str, messages: list[SentBack], answer: Any) -> None:
        """`answer`: (visible ms, dead) or a code for each, or one code."""
        refused = self._refused_pull(topic, group)
        if refused or isinstance(answer, str):
            return must(answer == refused, "send back", answer, refused)
        view, entered = self.views[(group, topic)], self.entered
        found: list[tuple[SentBack, Entry]] = []
        expected: list[Any] = []
        for one in messages:
            entry = self._find_sent(self.topics[topic], view, one)
            if isinstance(entry, str) or any(entry is other for _, other in found):
                expected.append(entry if isinstance(entry, str) else "MESSAGE_NOT_FOUND")
            else:
                found.append((one, entry))
                expected.append(self._fate(group, one, entry.attempts + 1))
        must(answer == expected, "send back", answer, expected)
        for one, entry in found:
            self._send_back(group, topic, view, one, entry, entered)
        return None

    def _find_sent(self, found: Topic, view: View, one: SentBack) -> Entry | str:
        """The entry of a retry, a new one of a message of a queue, or the code."""
        if one.retry:
            alike = [entry for entry in view.of("retry") if entry.number == one.offset]
            refused = "INVALID_FIELD" if one.queue else "MESSAGE_NOT_FOUND"
            return alike[0] if alike and not one.queue else refused
        if one.queue >= len(found.queues):
            return "INVALID_FIELD"
        place: Place = one.queue, one.offset
        if not found.begin[one.queue] <= one.offset < len(found.queues[one.queue]):
            return "MESSAGE_NOT_FOUND"
        return Entry(place, found.at(place).message_group, "", 0)

    def _fate(self, group: str, one: SentBack, attempts: int) -> tuple[int, bool]:
        settings = self.groups[group]
        dead = one.reject or attempts >= settings.max_attempts
        delay_ms = one.delay_ms
        if delay_ms is None:
            delay_ms = settings.delays_ms[min(attempts, len(settings.delays_ms)) - 1]
        return self.now_ms + (0 if dead else delay_ms), dead

    def _send_back(self, group: str, topic: str, view: View, one: SentBack, entry: Entry, entered: int) -> None:
        if not entry.state:
            view.held.append(entry)
        entry.attempts, entry.reason = entry.attempts + 1, one.reason
        visible_ms, dead = self._fate(group, one, entry.attempts)
        if dead:
            self.dead_letter(group, topic, entry, one.reason or ("" if one.reject else "no attempts left"))
        elif visible_ms > self.now_ms:
            entry.state, entry.due_ms, entry.lease = "backoff", visible_ms, None
        else:
            self.come_back(view, entry, entered)
