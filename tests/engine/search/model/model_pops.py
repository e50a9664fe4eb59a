"""The rules of pops: what may come, in which order, and when an answer may be short. Message groups: model_fifo.py.

The model does not predict what a pop takes. It sees the answer and the group's position after it, finds reasons
for both, and believes them.
"""

from collections import Counter
from typing import Any

from tests.engine.search.model.model_facts import (
    LOW_FIRST_EVERY,
    Answer,
    Asker,
    Bounds,
    Content,
    Entry,
    Lease,
    Place,
    Position,
    Record,
    Row,
    Topic,
    Turns,
    View,
    must,
)
from tests.engine.search.model.model_sends import Sends


class Pops(Sends):
    """Ordinary pops, and what all pops have in common."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.leases: dict[int, Lease] = {}
        self.entered = 1

    def refused_pop(self, topic: str, group: str, queues: tuple[int, ...]) -> str:
        refused = self.unresolved(topic, group)
        if not refused and any(queue >= len(self.topics[topic].queues) for queue in queues):
            refused = "INVALID_FIELD"
        view = self.views.get((group, topic))
        return refused or ("WRONG_CONSUME_MODE" if view and view.mode != "POP" else "")

    def pop(
        self,
        topic: str,
        group: str,
        asked: Bounds,
        invisible_ms: int,
        tried: tuple[str, str],
        wanted: tuple[str, str] | None,
        answer: Any,
    ) -> None:
        """Judges the answer of an ordinary pop. `tried`: client and attempt id."""
        refused = self.refused_pop(topic, group, asked.queues)
        if not refused and self.conflicts(topic, group, wanted):
            refused = "FILTER_CONFLICT"
        if refused or isinstance(answer, str):
            return must(answer == refused, "pop", answer, refused)
        view = self.bind(group, topic)
        self.subscribe(view, wanted)
        known = view.attempts.get(tried) if tried[1] else None
        if known is not None and undone(known):
            return self._judge_repeated(known, answer)
        entries = self._judge_rows(view, topic, asked, answer)
        must(not answer.replay, "a first pop is no replay")
        if not answer.rows:
            return must(answer.ck_id == 0, "an empty pop leases nothing", answer)
        due_ms = self.now_ms + (invisible_ms or self.groups[group].invisible_ms)
        must(answer.due_ms == due_ms, "due", answer.due_ms, due_ms)
        lease = self._take(view, topic, group, answer, entries, due_ms=due_ms)
        if tried[1]:
            view.attempts[tried] = lease
        return None

    def _judge_repeated(self, lease: Lease, answer: Answer) -> None:
        left = undone(lease)
        must(answer.replay and (answer.ck_id, answer.nonce) == (lease.ck_id, lease.nonce), "replay", answer)
        must([row.place for row in answer.rows] == [entry.place for entry in left], "replayed", answer, left)
        for row, entry in zip(answer.rows, left, strict=True):
            must(row.attempt == entry.attempts, "a replay counts no attempt", row)
            must(lease.members[row.member] is entry, "a replay keeps its handles", row)
        must(answer.popped_ms == lease.popped_ms, "popped", answer)
        if not lease.owner:
            must(answer.due_ms == min(entry.due_ms for entry in left), "due of a replay", answer)

    def _judge_rows(
        self, view: View, topic: str, asked: Bounds, answer: Answer, asker: Asker | None = None
    ) -> list[Entry | None]:
        """The entry of each row that was popped before."""
        found = self.topics[topic]
        must(len(answer.rows) <= asked.messages, "more than was asked", asked, answer)
        used = sum(found.at(row.place).size for row in answer.rows)
        must(used <= asked.bytes or len(answer.rows) == 1, "bytes", used, asked)
        for number, row in enumerate(answer.rows):
            stored = found.at(row.place)
            must((row.text, row.member) == (stored.content.text, number), "row", row, stored)
            must(view.wants(stored.content), "not what the group wants", row, view.filter)
            must(not self.is_over(stored.content, row.stored_ms), "after its ttl", row, stored)
        before, retries = list(view.next), len(view.of("retry")) if found.kind != "FIFO" else 0
        could_retry = bool(retries and self.poppable(view, asker, asked.upto))
        judge = self._judge_message_groups if found.kind == "FIFO" else self._judge_plain
        entries = judge(view, found, asked, answer, asker)
        retried = any(entries) or len(answer.stand.retry) < retries
        self._judge_turns(view, found, asked, before, could_retry, retried)
        return entries

    def _judge_turns(
        self, view: View, found: Topic, asked: Bounds, before: list[int], could_retry: bool, retried: bool
    ) -> None:
        """No source waits longer than the bounds of turns.py. A turn is a pop that took or passed messages."""
        count, turns = len(before), view.turns
        got_on = [queue for queue, offset in enumerate(before) if view.next[queue] > offset]
        if not got_on and not retried:
            return
        for queue in asked.queues or range(count):
            waits = queue not in got_on and before[queue] < self.stop(found, queue, asked.upto)
            turns.queues[queue] = turns.queues.get(queue, 0) + 1 if waits else 0
        turns.retries = turns.retries + 1 if could_retry and not retried else 0
        longest = max(turns.queues.values(), default=0)
        must(longest <= (11 * count if found.kind == "PRIORITY" else 2 * count - 1), "a queue starves", turns)
        must(turns.retries <= 4 + count, "retries starve", turns)
        if found.kind == "PRIORITY" and got_on:
            low = self._low_first(view, asked)
            for queue in asked.queues or range(count):
                turns.passed[queue] = 0 if low else turns.passed.get(queue, 0) + 1

    def _low_first(self, view: View, asked: Bounds) -> bool:
        queues = asked.queues or range(len(view.next))
        return any(view.turns.passed.get(queue, 0) >= LOW_FIRST_EVERY - 1 for queue in queues)

    def _judge_message_groups(
        self, view: View, found: Topic, asked: Bounds, answer: Answer, asker: Asker | None
    ) -> list[Entry | None]:
        raise NotImplementedError

    def _judge_plain(
        self, view: View, found: Topic, asked: Bounds, answer: Answer, asker: Asker | None
    ) -> list[Entry | None]:
        """Retries come oldest first, each queue in order, and the batch is short only if nothing more fitted."""
        left = self.poppable(view, asker, asked.upto)
        gone = Counter(self.record(found, entry) for entry in view.of("retry"))
        gone -= Counter(row.record for row in answer.stand.retry)
        entries = [self._match(found, left, row, gone) for row in answer.rows]
        taken = [entry.entered for entry in entries if entry is not None]
        must(taken == sorted(taken), "retries come oldest first", taken)
        fresh = [row for row, entry in zip(answer.rows, entries, strict=True) if entry is None]
        if found.kind == "PRIORITY" and asked.messages:
            self._judge_priority(view, found, asked, answer, fresh)
        for queue in range(len(view.next)):
            self._judge_queue(view, found, asked, queue, [row for row in fresh if row.queue == queue], answer)
        self._judge_dropped(view, found, left, entries, answer, max(taken, default=0))
        used = sum(found.at(row.place).size for row in answer.rows)
        sizes = [found.at(head).size for head in self._heads(view, found, asked)]
        sizes += [found.at(entry.place).size for entry in left if entry.entered == left[0].entered]
        if sizes and len(answer.rows) < asked.messages:
            full = bool(answer.rows) and any(used + size > asked.bytes for size in sizes)
            must(full, "short", asked, answer, left)
        must(answer.rest == self._unread(view, found, asked) + len(answer.stand.retry), "rest", answer)
        return entries

    def poppable(self, view: View, asker: Asker | None, upto: Position | None) -> list[Entry]:
        """Deliverable retries, oldest first, without those that the requesting owner takes back, and below `upto`."""
        found = (
            entry
            for entry in view.of("retry")
            if not (asker and asker.has(entry)) and (upto is None or entry.entered < upto.retry)
        )
        return sorted(found, key=lambda entry: (entry.entered, entry.number))

    def _match(self, found: Topic, left: list[Entry], row: Row, gone: Counter[Record]) -> Entry | None:
        """The retry entry that a row was, taken out of `left`; `gone`: how many have left the retry topic.

        One message may stand there twice, sent back twice; or there and in its queue, after a reset.
        """
        stored_ms = found.at(row.place).stored_ms
        alike = [one for one in left if self.record(found, one)[:2] == (row.place, row.stored_ms)]
        alike = [one for one in alike if gone[self.record(found, one)]]
        if not alike:
            must((row.attempt, row.stored_ms) == (1, stored_ms), "a first delivery", row, stored_ms)
            return None
        entry = min(alike, key=lambda one: (one.entered, one.attempts + 1 != row.attempt, one.number))
        must(row.attempt == entry.attempts + 1, "attempt", row, entry)
        gone[self.record(found, entry)] -= 1
        left.remove(entry)
        return entry

    def stored_ms(self, found: Topic, entry: Entry) -> int:
        """The time at which the record of an entry was stored."""
        return entry.stored_ms or found.at(entry.place).stored_ms

    def record(self, found: Topic, entry: Entry) -> Record:
        """Identifies an entry among several of the same message, as far as possible."""
        lease = entry.tied.lease if entry.tied else None
        return entry.place, self.stored_ms(found, entry), lease.ck_id if lease else 0

    def _judge_queue(
        self, view: View, found: Topic, asked: Bounds, queue: int, rows: list[Row], answer: Answer
    ) -> None:
        """Judges one queue: in order from the group's position; messages left out do not match, and are counted."""
        stop = answer.stand.next[queue]
        if asked.queues and queue not in asked.queues:
            must(not rows and stop == view.next[queue], "a queue that was not asked for", queue, rows, asked)
        must(view.next[queue] <= stop <= max(view.next[queue], self.stop(found, queue, asked.upto)), "end", queue, stop)
        taken = [row.offset for row in rows]
        offsets = list(range(view.next[queue], stop))
        must(taken == sorted(set(taken)) and set(taken) <= set(offsets), "in order", taken, view.next, stop)
        for offset in set(offsets) - set(taken):
            self._pass_by(view, found, (queue, offset))
        view.next[queue] = stop

    def _pass_by(self, view: View, found: Topic, place: Place) -> None:
        """Passes a message that was not delivered: it was dropped, does not match, or its ttl is over.

        Retention may drop a message and leave its entry, whose tag is then still compared.
        """
        content = found.at(place).content
        if found.has(place):
            wanted = view.wants(content)
            must(not wanted or self.is_over(content, found.at(place).stored_ms), "passed over", place)
            view.expired += wanted
            view.filtered += not wanted
        elif place in found.indexed and view.filter and view.filter.by_tag and not view.wants(content):
            view.filtered += 1
        else:
            view.dropped += 1

    def _judge_dropped(
        self,
        view: View,
        found: Topic,
        left: list[Entry],
        entries: list[Entry | None],
        answer: Answer,
        newest: int,
    ) -> None:
        """Entries that left the retry topic without a delivery do not match the filter, or their ttl is over."""
        taken = [id(entry) for entry in entries if entry is not None]
        before = Counter(self.record(found, entry) for entry in view.of("retry") if id(entry) not in taken)
        after = Counter(row.record for row in answer.stand.retry)
        must(after <= before, "entries from nowhere", after, before)
        gone = before - after
        for entry in list(left):
            if gone[self.record(found, entry)]:
                gone[self.record(found, entry)] -= 1
                left.remove(entry)
                self.pass_over(view, found, entry)
                newest = max(newest, entry.entered)
        must(not gone.total(), "others' entries have gone", gone)
        must(all(entry.entered >= newest for entry in left), "older retries stay behind", left, newest)

    def is_over(self, content: Content, stored_ms: int) -> bool:
        """Whether the ttl of a message that became visible at this time is over."""
        return 0 < content.ttl_ms <= self.now_ms - stored_ms

    def pass_over(self, view: View, found: Topic, entry: Entry) -> None:
        """A message that was popped before ends without a delivery: it does not match, or its ttl is over."""
        content = found.at(entry.place).content
        if view.wants(content):
            must(self.is_over(content, self.stored_ms(found, entry)), "passed over, and wanted", entry)
        self._lose(view, entry, "expired" if view.wants(content) else "filtered")

    def _lose(self, view: View, entry: Entry, state: str) -> None:
        """A message ends for the group without a delivery; the token of an owner that was to have it counts it."""
        if entry.tied is not None:
            entry.tied.stolen += 1
        view.filtered += state == "filtered"
        view.expired += state == "expired"
        view.over(entry, state)

    def stop(self, found: Topic, queue: int, upto: Position | None) -> int:
        end = len(found.queues[queue])
        return end if upto is None else min(end, upto.queues.get(queue, 0))

    def _heads(self, view: View, found: Topic, asked: Bounds) -> list[Place]:
        """The next deliverable message of each queue."""
        heads = []
        for queue in asked.queues or range(len(view.next)):
            left = range(view.next[queue], self.stop(found, queue, asked.upto))
            heads += [(queue, offset) for offset in left if found.has((queue, offset))][:1]
        return heads

    def _unread(self, view: View, found: Topic, asked: Bounds) -> int:
        return sum(len(found.queues[queue]) - view.next[queue] for queue in asked.queues or range(len(view.next)))

    # ── Priority ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _judge_priority(self, view: View, found: Topic, asked: Bounds, answer: Answer, fresh: list[Row]) -> None:
        """Queues come from high to low, except in one pop of ten."""
        queues = [row.queue for row in fresh]
        lowest = min(queues, default=len(view.next))
        higher = [queue for queue in asked.queues or range(len(view.next)) if queue > lowest]
        exhausted = all(answer.stand.next[queue] >= self.stop(found, queue, asked.upto) for queue in higher)
        high_first = exhausted and queues == sorted(queues, reverse=True)
        must(high_first or self._low_first(view, asked), "the urgent comes first", answer, view.turns)

    def turns_are_lost(self) -> None:
        """After a restart the engine counts turns anew."""
        for view in self.views.values():
            view.turns = Turns()

    # ── Leases ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(
        self,
        view: View,
        topic: str,
        group: str,
        answer: Answer,
        entries: list[Entry | None],
        *,
        due_ms: int = 0,
        owner: str = "",
        part: int = 0,
    ) -> Lease:
        """The delivered messages are leased; an owner that would have got one back has lost it."""
        must(answer.ck_id not in self.leases, "a CheckPoint's number is used once", answer)
        must(answer.popped_ms == self.now_ms, "popped", answer)
        lease = Lease(answer.ck_id, answer.nonce, group, topic, self.now_ms, [], owner, part)
        self.leases[lease.ck_id] = lease
        for row, before in zip(answer.rows, entries, strict=True):
            message_group = self.topics[topic].at(row.place).message_group
            entry = before or Entry(row.place, message_group, "", 0)
            if before is None:
                view.held.append(entry)
            elif entry.tied is not None:
                entry.tied.stolen += 1
            entry.state, entry.attempts, entry.lease = "bound" if owner else "leased", row.attempt, lease
            entry.due_ms, entry.tied, entry.part, entry.reason = due_ms, None, 0, ""
            lease.members.append(entry)
        return lease


def undone(lease: Lease) -> list[Entry]:
    """The unfinished members of a lease, in their order."""
    return [entry for entry in lease.members if entry.lease is lease and entry.state in ("leased", "bound")]
