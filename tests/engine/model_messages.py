"""The rules of topics, groups, send, pop, ack and change: one half of the model (model.py)."""

from __future__ import annotations

from typing import Any

from tests.engine.model_facts import (
    DEDUP_MS,
    NEVER_GIVEN,
    Answer,
    Bounds,
    Entry,
    Group,
    Handle,
    Lease,
    Owner,
    Place,
    Position,
    Row,
    Stored,
    Token,
    Topic,
    View,
    must,
)


class Messages:
    """All topics and groups, and what their messages go through without owners."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.views: dict[tuple[str, str], View] = {}
        self.leases: dict[int, Lease] = {}
        self.requests: dict[tuple[str, int], tuple[int, int, int, int, int]] = {}
        self.entered = 1
        self.numbers_given = 0

    # ── Topics and groups ────────────────────────────────────────────────────────────────────────────────────────

    def create_topic(self, name: str, queues: int) -> str:
        found = self.topics.get(name)
        if found is not None:
            return "" if len(found.queues) == queues else "ALREADY_EXISTS"
        self.numbers_given += 1
        self.topics[name] = Topic(self.numbers_given, [[] for _ in range(queues)])
        return ""

    def grow_topic(self, name: str, queues: int) -> str:
        topic = self.topics.get(name)
        if topic is None:
            return "TOPIC_NOT_FOUND"
        if queues < len(topic.queues):
            return "INVALID_FIELD"
        more = queues - len(topic.queues)
        topic.queues += [[] for _ in range(more)]
        for (_, of), view in self.views.items():
            if of == name:
                view.next += [0] * more
        return ""

    def delete_topic(self, name: str) -> str:
        if self.topics.pop(name, None) is None:
            return "TOPIC_NOT_FOUND"
        self._forget(lambda group, topic: topic == name)
        for settings in self.groups.values():
            for owner in settings.owners.values():
                owner.tokens = {key: token for key, token in owner.tokens.items() if key[0] != name}
        return ""

    def create_group(self, name: str, group: Group) -> str:
        found = self.groups.get(name)
        if found is not None:
            same = (found.max_attempts, found.delays_ms, found.invisible_ms, found.start, found.exclusive) == (
                *(group.max_attempts, group.delays_ms, group.invisible_ms, group.start, group.exclusive),
            )
            return "" if same else "ALREADY_EXISTS"
        self.groups[name] = group
        return ""

    def change_group(self, name: str, max_attempts: int, exclusive: bool) -> str:
        group = self.groups.get(name)
        if group is None:
            return "GROUP_NOT_FOUND"
        if group.exclusive and not exclusive:
            for owner in group.owners.values():
                owner.released = False
        group.max_attempts, group.exclusive = max_attempts, exclusive
        return ""

    def delete_group(self, name: str) -> str:
        if self.groups.pop(name, None) is None:
            return "GROUP_NOT_FOUND"
        self._forget(lambda group, topic: group == name)
        return ""

    def _forget(self, which: Any) -> None:
        self.views = {key: view for key, view in self.views.items() if not which(*key)}
        self.leases = {number: lease for number, lease in self.leases.items() if not which(lease.group, lease.topic)}

    def bind(self, group: str, topic: str, start: tuple[str, int] | None = None) -> View:
        """A group starts where it is told when it first names a topic."""
        view = self.views.get((group, topic))
        if view is None:
            kind, since_ms = start or self.groups[group].start
            begin = {"EARLIEST": lambda queue: 0, "LATEST": len}.get(kind) or (
                lambda queue: sum(1 for message in queue if message.stored_ms < since_ms)
            )
            view = self.views[(group, topic)] = View([begin(queue) for queue in self.topics[topic].queues])
        return view

    # ── Send ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, topic: str, texts: list[tuple[str, int]], request: tuple[str, int], answer: Any) -> None:
        """`texts`: (text, bytes of its record). `answer`: (queue, first, duplicate), or a code."""
        found = self.topics.get(topic)
        if found is None:
            return must(answer == "TOPIC_NOT_FOUND", "send", answer)
        seen = self.requests.get(request) if request[0] else None
        if seen is not None and self.now_ms - seen[0] <= DEDUP_MS:
            if seen[1:3] == (found.number, len(texts)):
                return must(answer == (*seen[3:], True), "repeated send", seen, answer)
            return must(answer == "REQUEST_NUMBER_REUSED", "reused number", answer)
        if not texts:
            return must(answer[2] is False, "send of nothing", answer)
        queue, first, duplicate = answer
        must(not duplicate, "a first send is no duplicate")
        must(0 <= queue < len(found.queues) and first == len(found.queues[queue]), "place of a send", answer)
        found.queues[queue] += [Stored(text, self.now_ms, size) for text, size in texts]
        if request[0]:
            self.requests[request] = (self.now_ms, found.number, len(texts), queue, first)
        return None

    # ── Pop ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def refused_pop(self, topic: str, group: str, queues: tuple[int, ...]) -> str:
        if topic not in self.topics:
            return "TOPIC_NOT_FOUND"
        if group not in self.groups:
            return "GROUP_NOT_FOUND"
        return "INVALID_FIELD" if any(queue >= len(self.topics[topic].queues) for queue in queues) else ""

    def pop(
        self, topic: str, group: str, asked: Bounds, invisible_ms: int, client: str, attempt: str, answer: Any
    ) -> None:
        """Judges the answer of an ordinary pop."""
        refused = self.refused_pop(topic, group, asked.queues)
        if refused or isinstance(answer, str):
            return must(answer == refused, "pop", answer, refused)
        view = self.bind(group, topic)
        known = view.attempts.get((client, attempt)) if attempt else None
        if known is not None and self._undone(view, known):
            return self._judge_repeated(view, known, answer)
        self._judge_rows(view, topic, asked, answer, None)
        must(not answer.replay, "a first pop is no replay")
        if not answer.rows:
            return must(answer.ck_id == 0, "an empty pop leases nothing", answer)
        due_ms = self.now_ms + (invisible_ms or self.groups[group].invisible_ms)
        must(answer.due_ms == due_ms, "due", answer.due_ms, due_ms)
        lease = self._take(view, topic, group, client, answer, "leased", due_ms)
        if attempt:
            view.attempts[(client, attempt)] = lease
        return None

    def _undone(self, view: View, lease: Lease) -> dict[Place, Entry]:
        return {
            place: view.entries[place]
            for place in lease.members
            if view.entries[place].lease is lease and view.entries[place].state in ("leased", "bound")
        }

    def _judge_repeated(self, view: View, lease: Lease, answer: Answer) -> None:
        undone = self._undone(view, lease)
        must(answer.replay and (answer.ck_id, answer.nonce) == (lease.ck_id, lease.nonce), "replay", answer)
        must([row.place for row in answer.rows] == list(undone), "replayed members", answer, undone)
        for row in answer.rows:
            must(row.attempt == view.entries[row.place].attempts, "a replay counts no attempt", row)
            must(lease.members[row.member] == row.place, "a replay keeps its handles", row)
        must(answer.popped_ms == lease.popped_ms, "popped", answer)
        if not lease.owner:
            must(answer.due_ms == min(entry.due_ms for entry in undone.values()), "due of a replay", answer)

    def _judge_rows(self, view: View, topic: str, asked: Bounds, answer: Answer, owner: Owner | None) -> None:
        """Deliverable, in order, with the right content and attempt; short only when nothing more fitted."""
        queues = self.topics[topic].queues
        retries = self._poppable_retries(view, owner, asked.upto)
        taken = [row for row in answer.rows if row.place in retries]
        used = 0
        for place, row in enumerate(answer.rows):
            entry = retries.pop(row.place, None)
            stored = queues[row.queue][row.offset]
            must((row.text, row.stored_ms, row.member) == (stored.text, stored.stored_ms, place), "content", row)
            must(row.attempt == (entry.attempts + 1 if entry else 1), "attempt", row, entry)
            used += stored.size
        must(used <= asked.bytes or len(answer.rows) == 1, "bytes", used, asked)
        entered = [view.entries[row.place].entered for row in taken]
        must(entered == sorted(entered), "retries come oldest first", entered)
        must(all(entry.entered >= max(entered, default=0) for entry in retries.values()), "older retries stay behind")
        self._judge_queues(view, topic, asked, [row for row in answer.rows if row not in taken])
        left = self._heads(view, topic, asked, retries)
        room = asked.messages - len(answer.rows)
        must(room >= 0, "more than was asked", asked, answer)
        if left and room:
            must(bool(answer.rows) and any(used + size > asked.bytes for size in left), "short", asked, answer, left)
        self._judge_rest(view, topic, asked, answer, len(taken))

    def _poppable_retries(self, view: View, owner: Owner | None, upto: Position | None) -> dict[Place, Entry]:
        """Not those that the asking owner is about to take back, and none from `upto` on."""
        own = [id(token) for token in owner.tokens.values()] if owner else []
        return {
            place: entry
            for place, entry in view.of("retry").items()
            if id(entry.tied) not in own and (upto is None or entry.entered < upto.retry)
        }

    def _judge_queues(self, view: View, topic: str, asked: Bounds, rows: list[Row]) -> None:
        allowed = asked.queues or tuple(range(len(view.next)))
        for row in rows:
            must(row.queue in allowed, "a queue that was not asked for", row, asked)
            must(row.offset == view.next[row.queue], "in order from the first that is ready", row, view.next)
            must(row.offset < self._stop(topic, row.queue, asked.upto), "beyond upto", row, asked)
            view.next[row.queue] += 1

    def _stop(self, topic: str, queue: int, upto: Position | None) -> int:
        end = len(self.topics[topic].queues[queue])
        return end if upto is None else min(end, upto.queues.get(queue, 0))

    def _heads(self, view: View, topic: str, asked: Bounds, retries: dict[Place, Entry]) -> list[int]:
        """Sizes of what could have come next."""
        queues = self.topics[topic].queues
        heads = [
            queues[queue][view.next[queue]].size
            for queue in asked.queues or range(len(view.next))
            if view.next[queue] < self._stop(topic, queue, asked.upto)
        ]
        first = min((entry.entered for entry in retries.values()), default=0)
        return heads + [queues[q][o].size for (q, o), entry in retries.items() if entry.entered == first]

    def _judge_rest(self, view: View, topic: str, asked: Bounds, answer: Answer, retried: int) -> None:
        ends = [len(queue) for queue in self.topics[topic].queues]
        rest = sum(ends[queue] - view.next[queue] for queue in asked.queues or range(len(ends)))
        must(answer.rest == rest + len(view.of("retry")) - retried, "rest", answer, rest)

    def _take(
        self, view: View, topic: str, group: str, client: str, answer: Answer, state: str, due_ms: int, owner: str = ""
    ) -> Lease:
        members = [row.place for row in answer.rows]
        must(answer.ck_id not in self.leases, "a CheckPoint's number is used once", answer)
        must(answer.popped_ms == self.now_ms, "popped", answer)
        lease = Lease(answer.ck_id, answer.nonce, group, topic, client, self.now_ms, members, owner)
        self.leases[lease.ck_id] = lease
        for row in answer.rows:
            before = view.entries.get(row.place)
            if before is not None and before.tied is not None:
                before.tied.stolen += 1
            first_pop_ms = before.first_pop_ms if before else self.now_ms
            view.entries[row.place] = Entry(state, row.attempt, first_pop_ms, lease, due_ms)
        return lease

    # ── Ack, extend, release, reject ─────────────────────────────────────────────────────────────────────────────

    def find(self, group: str, handle: Handle) -> tuple[str, View, Place, Entry] | str:
        """The undone member that a handle names, or the code."""
        lease = self.leases.get(handle.ck_id)
        view = self.views.get((lease.group, lease.topic)) if lease else None
        if lease is None or view is None or not self._lives(view, lease):
            return "INVALID_HANDLE" if handle.ck_id >= NEVER_GIVEN else "HANDLE_LAPSED"
        if lease.nonce != handle.nonce or handle.member >= len(lease.members) or lease.group != group:
            return "INVALID_HANDLE"
        place = lease.members[handle.member]
        entry = view.entries[place]
        if entry.lease is not lease or entry.state not in ("leased", "bound"):
            return "HANDLE_LAPSED"
        return lease.topic, view, place, entry

    def _lives(self, view: View, lease: Lease) -> bool:
        """An owner's CheckPoint lives as long as its token."""
        if lease.owner:
            owner = self.groups[lease.group].owners.get(lease.owner)
            return owner is not None and any(token.lease is lease for token in owner.tokens.values())
        return bool(self._undone(view, lease))

    def ack(self, group: str, handles: list[Handle], answer: Any) -> None:
        """`answer`: a code for each handle, "" for done; or one code."""
        if group not in self.groups:
            return must(answer == "GROUP_NOT_FOUND", "ack", answer)
        found = [self.find(group, handle) for handle in handles]
        seen: set[int] = set()
        expected = []
        for one in found:
            if isinstance(one, str):
                expected.append(one)
            elif id(one[3]) in seen:
                expected.append("HANDLE_LAPSED")
            else:
                seen.add(id(one[3]))
                expected.append("")
        must(answer == expected, "ack", answer, expected)
        for one, code in zip(found, expected, strict=True):
            if not isinstance(one, str) and not code:
                one[3].state = "done"
                one[1].acked += 1
        return None

    def change(self, group: str, changes: list[tuple[Handle, str, int | None, bool, str]], answer: Any) -> None:
        """`changes`: (handle, kind, delay, uncounted, reason). `answer`: (visible ms, dead) or a code for each."""
        if group not in self.groups:
            return must(answer == "GROUP_NOT_FOUND", "change", answer)
        seen: set[int] = set()
        wanted: list[Any] = []
        for handle, *how in changes:
            found = self.find(group, handle)
            if isinstance(found, str):
                wanted.append(found)
            elif found[3].lease.owner or id(found[3]) in seen:
                wanted.append("INVALID_FIELD")
            else:
                seen.add(id(found[3]))
                wanted.append((*found, *how))
        entered = self.entered
        expected = [one if isinstance(one, str) else self._change(group, entered, *one) for one in wanted]
        must(answer == expected, "change", answer, expected)
        return None

    def _change(
        self,
        group: str,
        entered: int,
        topic: str,
        view: View,
        place: Place,
        entry: Entry,
        kind: str,
        delay_ms: int | None,
        uncounted: bool,
        reason: str,
    ) -> tuple[int, bool]:
        settings = self.groups[group]
        if kind == "extend":
            entry.due_ms = self.now_ms + (delay_ms or 0)
            return entry.due_ms, False
        if kind == "reject" or (entry.attempts >= settings.max_attempts and not uncounted):
            self._bury(group, topic, place, entry, reason or ("no attempts left" if kind == "release" else ""))
            return self.now_ms, True
        if delay_ms is None:
            delay_ms = settings.delays_ms[min(entry.attempts, len(settings.delays_ms)) - 1]
        entry.attempts -= uncounted
        entry.reason = reason
        entry.due_ms = self.now_ms + delay_ms
        if delay_ms:
            entry.state = "backoff"
        else:
            self._retry(entry, entered)
        return entry.due_ms, False

    def _retry(self, entry: Entry, entered: int, tied: Token | None = None) -> None:
        self.entered += 1
        entry.state, entry.entered, entry.tied = "retry", entered, tied

    def _bury(self, group: str, topic: str, place: Place, entry: Entry, reason: str) -> None:
        entry.state = "dead"
        text = self.topics[topic].queues[place[0]][place[1]].text
        self.groups[group].dead.append((text, topic, place[0], place[1], entry.attempts, reason))

    # ── Numbers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def ready(self, group: str, topic: str) -> int:
        view = self.views[(group, topic)]
        return sum(len(queue) - at for queue, at in zip(self.topics[topic].queues, view.next, strict=True))

    def deliverable(self, group: str, topic: str) -> int:
        return self.ready(group, topic) + len(self.views[(group, topic)].of("retry"))

    def numbers(self, group: str, topic: str) -> tuple[int, ...]:
        """ready, in flight, retry, backoff, dead, acked, owners."""
        view, settings = self.views[(group, topic)], self.groups[group]
        counts = [len(view.of(*states)) for states in (("leased", "bound"), ("retry",), ("backoff",))]
        return self.ready(group, topic), *counts, len(settings.dead), view.acked, len(settings.owners)

    def available(self, group: str, topic: str, upto: Position | None) -> int:
        """Messages deliverable below a position."""
        view = self.views[(group, topic)]
        retries = self._poppable_retries(view, None, upto)
        ready = (max(0, self._stop(topic, queue, upto) - at) for queue, at in enumerate(view.next))
        return sum(ready) + len(retries)

    def oldest(self, group: str, topic: str) -> int:
        """When the oldest unfinished message was stored; 0 = none."""
        view, queues = self.views[(group, topic)], self.topics[topic].queues
        times = [queues[q][o].stored_ms for q, o in view.of("leased", "bound", "backoff", "retry")]
        times += [queue[at].stored_ms for queue, at in zip(queues, view.next, strict=True) if at < len(queue)]
        return min(times, default=0)
