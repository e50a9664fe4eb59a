"""The rules of FIFO topics: order by message group through leases, failures and owners.

a message group is locked while one of its messages is leased or in backoff; its later messages then wait
waiting messages are delivered in order, and no later message before them
a failure counts for the first message of its message group in the batch; later ones are released uncounted
a redriven message that its queue has no more comes when its message group is free, after a reset also before older ones
"""

from collections import Counter

from tests.engine.search.model.model_facts import (
    SHARE_OF_BATCH,
    Answer,
    Asker,
    Bounds,
    DeadLetter,
    Entry,
    Position,
    Row,
    Token,
    Topic,
    View,
    must,
)
from tests.engine.search.model.model_pops import Pops

LOCKING = ("leased", "bound", "backoff")


class Lines:
    """The message groups of a view, as a pop finds them."""

    def __init__(self, view: View, asker: Asker | None = None, upto: Position | None = None) -> None:
        self._asker = asker
        self._upto = upto
        self.waiting: dict[str, list[Entry]] = {}
        for entry in sorted(view.of("waiting"), key=lambda one: one.place):
            self.waiting.setdefault(entry.message_group, []).append(entry)
        self.stopped = {entry.message_group for entry in view.of("waiting") if entry.stopped}
        holders = view.of(*LOCKING)
        self.locked = {entry.message_group for entry in holders}
        #: Message groups of which the requesting token may not take more.
        self.closed = {entry.message_group for entry in holders if not (asker and asker.locks(entry))}

    def ready(self) -> set[str]:
        """Message groups that are ready: a message waits, and they are neither locked nor stopped."""
        return self.waiting.keys() - self.locked - self.stopped

    def allows(self, entry: Entry) -> bool:
        """Whether the pop may take a waiting message: not one that its own token takes back, nor one from `upto` on."""
        if self._asker is not None and self._asker.has(entry):
            return False
        return self._upto is None or entry.place[1] < self._upto.queues.get(entry.place[0], 0)


def lines_left(view: View, taken: set[int]) -> set[str]:
    """Message groups with waiting messages that the pop did not take."""
    return {entry.message_group for entry in view.of("waiting") if id(entry) not in taken}


class MessageGroups(Pops):
    """Pops of FIFO topics, and failed messages."""

    def _judge_message_groups(
        self, view: View, found: Topic, asked: Bounds, answer: Answer, asker: Asker | None
    ) -> list[Entry | None]:
        lines = Lines(view, asker, asked.upto)
        must(not answer.stand.retry, "nothing of a FIFO topic is in the retry topic", answer)
        entries, dropped = self._judge_order(view, found, answer, lines)
        taken = {id(entry) for entry in entries if entry is not None}
        parked = self._judge_reading(view, found, asked, answer, entries, lines)
        expected = {one.place for one in view.of("waiting") if id(one) not in taken and one not in dropped}
        must(answer.stand.waiting == expected | {one.place for one in parked}, "waiting", answer.stand, expected)
        self._judge_share(asked, answer, entries, lines, dropped)
        self._judge_fill(view, found, asked, answer, lines)
        self._tear(view, [*(entry for entry in entries if entry is not None), *dropped])
        for entry in dropped:
            self.pass_over(view, found, entry)
        view.held += parked
        locked = lines.locked | {found.at(row.place).message_group for row in answer.rows}
        rest = self._unread(view, found, asked) + len(lines_left(view, taken) - locked - lines.stopped)
        must(answer.rest == rest, "rest", answer, rest)
        return entries

    def _judge_order(
        self, view: View, found: Topic, answer: Answer, lines: Lines
    ) -> tuple[list[Entry | None], list[Entry]]:
        """(the entry of each row that waited, entries that are not wanted any more); each from the front."""
        last: dict[str, int] = {}
        entries: list[Entry | None] = []
        dropped: list[Entry] = []
        left = {message_group: list(line) for message_group, line in lines.waiting.items()}
        for row in answer.rows:
            message_group = found.at(row.place).message_group
            must(message_group not in lines.closed, "a locked message group", row)
            must(message_group not in lines.stopped, "a stopped message group", row)
            if found.has(row.place):
                must(last.get(message_group, -1) < row.offset, "in order", row, answer)
                last[message_group] = row.offset
            line = left.get(message_group, [])
            dropped += self._pass_over(view, found, line, answer, row, lines)
            entries.append(self._front(view, found, line, row, lines))
        for message_group, line in left.items():
            gone = self._pass_over(view, found, line, answer, None, lines)
            must(not gone or message_group not in lines.locked | lines.stopped, "passed over, and locked", gone)
            dropped += gone
        return entries, dropped

    def _pass_over(
        self, view: View, found: Topic, line: list[Entry], answer: Answer, row: Row | None, lines: Lines
    ) -> list[Entry]:
        """Removes the entries before a row (None: before the waiting ones) that do not exist any more."""
        gone = []
        while line and (row is None or line[0].place != row.place) and line[0].place not in answer.stand.waiting:
            entry = line.pop(0)
            content = found.at(entry.place).content
            over = self.is_over(content, self.stored_ms(found, entry))
            must(over or not view.wants(content), "gone, and wanted", entry)
            must(lines.allows(entry), "gone, and out of bounds", entry)
            gone.append(entry)
        return gone

    def _front(self, view: View, found: Topic, line: list[Entry], row: Row, lines: Lines) -> Entry | None:
        """The entry of a row that waited, which must have been the first one."""
        if not line:
            must(row.attempt == 1 and row.offset >= view.next[row.queue], "a first delivery", row)
            must(row.stored_ms == found.at(row.place).stored_ms, "stored", row)
            return None
        entry = line.pop(0)
        must(entry.place == row.place, "the first that waits comes first", row, entry)
        must(lines.allows(entry), "out of bounds", row, entry)
        must((row.attempt, row.stored_ms) == (entry.attempts + 1, self.stored_ms(found, entry)), "attempt", row, entry)
        return entry

    def _judge_reading(
        self, view: View, found: Topic, asked: Bounds, answer: Answer, entries: list[Entry | None], lines: Lines
    ) -> list[Entry]:
        """Judges each queue from the group's position on: a message was taken, not wanted, or waits after others."""
        fresh = {row.place for row, entry in zip(answer.rows, entries, strict=True) if entry is None}
        parked: list[Entry] = []
        for queue, start in enumerate(view.next):
            stop = answer.stand.next[queue]
            if asked.queues and queue not in asked.queues:
                must(stop == start, "a queue that was not asked for", queue, asked)
            must(start <= stop <= max(start, self.stop(found, queue, asked.upto)), "end", queue, stop)
            for offset in range(start, stop):
                stored = found.queues[queue][offset]
                if (queue, offset) in fresh:
                    fresh.remove((queue, offset))
                elif (
                    not found.has((queue, offset))
                    or not view.wants(stored.content)
                    or self.is_over(stored.content, stored.stored_ms)
                ):
                    self._pass_by(view, found, (queue, offset))
                else:
                    busy = lines.waiting.keys() | lines.closed
                    must(stored.message_group in busy, "it waits for nobody", queue, offset, stored)
                    parked.append(Entry((queue, offset), stored.message_group, "waiting", 0))
            view.next[queue] = stop
        must(not fresh, "read, and not passed", fresh)
        for row in filter(lambda one: found.has(one.place), answer.rows):
            over = [one for one in parked if one.place[0] == row.queue and one.place[1] < row.offset]
            ours = found.at(row.place).message_group
            must(all(one.message_group != ours for one in over), "overtakes what waits", row, over)
        return parked

    def _judge_share(
        self, asked: Bounds, answer: Answer, entries: list[Entry | None], lines: Lines, dropped: list[Entry]
    ) -> None:
        """No message group gets more than its share of the batch before each other one got a message."""
        counts = Counter(entry.message_group for entry in entries if entry is not None)
        share = max(1, asked.messages // SHARE_OF_BATCH)
        served = counts.keys() | {entry.message_group for entry in dropped}
        if max(counts.values(), default=0) > share:
            for message_group in lines.ready() - served:
                must(not lines.allows(lines.waiting[message_group][0]), "kept out", message_group, answer)

    def _judge_fill(self, view: View, found: Topic, asked: Bounds, answer: Answer, lines: Lines) -> None:
        """A batch has room left only if all was read and no deliverable message waits."""
        if len(answer.rows) == asked.messages:
            return
        left = [found.at(head) for head in self._heads(view, found, asked)]
        taken = {row.place for row in answer.rows}
        for message_group in lines.ready():
            line = [one for one in lines.waiting[message_group] if one.place in answer.stand.waiting - taken]
            if line and lines.allows(line[0]):
                left.append(found.at(line[0].place))
        used = sum(found.at(row.place).size for row in answer.rows)
        full = bool(answer.rows) and any(used + stored.size > asked.bytes for stored in left)
        must(full or not left, "short", asked, answer, left)

    def _tear(self, view: View, gone: list[Entry]) -> None:
        """A pop of a message unties the later ones of its message group from their tokens, to keep the order."""
        first = {entry.message_group: entry.place for entry in sorted(gone, key=lambda one: one.place, reverse=True)}
        for entry in view.of("waiting"):
            if entry.tied and entry not in gone and entry.place > first.get(entry.message_group, entry.place):
                entry.tied.stolen += 1
                entry.tied = None

    # ── Failures ─────────────────────────────────────────────────────────────────────────────────────────────────

    def come_back(self, view: View, entry: Entry, entered: int, tied: Token | None = None) -> None:
        """To the retry topic, or to its place in its message group."""
        entry.lease, entry.due_ms, entry.tied, entry.part = entry.lease if tied else None, 0, tied, 0
        if entry.message_group and view.mode == "POP":
            self._wait(view, entry)
        else:
            self.entered += 1
            entry.state, entry.entered, entry.number, entry.stopped = "retry", entered, 0, False

    def _wait(self, view: View, entry: Entry) -> None:
        """A message that was sent back twice waits once."""
        twice = any(one.place == entry.place for one in view.of("waiting"))
        if twice and view.pulled:
            view.over(entry, "void")
        else:
            entry.state = "waiting"

    def dead_letter(self, group: str, topic: str, entry: Entry, reason: str) -> None:
        self.views[(group, topic)].over(entry, "dead")
        text = self.topics[topic].at(entry.place).content.text
        self.groups[group].dead.append(DeadLetter(text, topic, *entry.place, entry.attempts, reason, self.now_ms))

    def fail(self, group: str, topic: str, entry: Entry, reason: str) -> None:
        """No attempt is left: a dead letter, or it stops its message group."""
        view = self.views[(group, topic)]
        if self.groups[group].stops and entry.message_group and view.mode == "POP":
            entry.stopped, entry.reason = True, reason
            self.come_back(view, entry, 0)
        else:
            self.dead_letter(group, topic, entry, reason)

    def resume(self, topic: str, group: str, message_group: str, dead_letter: bool, answer: str) -> None:
        refused = self.unresolved(topic, group)
        if not refused and self.topics[topic].kind != "FIFO":
            refused = "INVALID_FIELD"
        view = self.views.get((group, topic))
        heads = (
            [one for one in view.of("waiting") if one.stopped and one.message_group == message_group] if view else []
        )
        refused = refused or ("" if heads else "MESSAGE_NOT_FOUND")
        must(answer == refused, "resume", answer, refused)
        for head in heads if not refused else ():
            if dead_letter:
                self.dead_letter(group, topic, head, head.reason)
            else:
                head.attempts, head.stopped, head.reason = 0, False, f"resumed: {head.reason}"
                head.snoozes = 0
