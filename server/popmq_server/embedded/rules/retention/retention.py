"""Retention: drops chunks of the log by time.

By default a chunk is dropped `keep_ms` after every group had passed it, which marks record (marks.py), and only if
every group is still past it: retention keeps messages that a group has not finished, also after a reset, and for groups
that came later. By age, a chunk is dropped `keep_ms` after it was stored; its unread messages are counted as `dropped`.
A chunk that a lease or a retry entry points into is skipped, and the search goes on; if it stays pinned for long, its
live records are copied, so that a forgotten lease does not hold a whole chunk (kept.py).

    stored ──── every group has passed it ────── keep_ms ────▶ dropped, if that still holds
                          │ mark                        ├── pinned: skipped, checked again each minute
                                                        └── an hour later: live records → kept, the rest is dropped

A chunk that no queue names (`bare`: redriven messages) is dropped as soon as nothing points into it. A chunk of dead
letters that were all redriven is dropped REDRIVEN_KEEP_MS after the last redrive: until then `why` reads them.

A round covers all topics, in pieces of LOOKS_MAX looks, however many topics and chunks there are. It begins each
minute, and earlier while many messages are stored (housekeeping.py):

    for each topic by its id:  marks → drops → redriven dead letters   then bare chunks, then copies
                               └── a full piece continues here the next time
"""

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.retention import floors
from popmq_server.embedded.rules.retention.chunks import (
    Chunk,
    chunks,
    drop,
    pinned,
)
from popmq_server.embedded.rules.retention.kept import Keeping
from popmq_server.embedded.rules.topics.chunk import close
from popmq_server.embedded.state import marks
from popmq_server.embedded.state.jobs import Job
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import TOPIC_AT, U32
from popmq_server.values.limits import KEEP_MS_DEFAULT
from popmq_server.values.records import Topic

#: Looks in one piece: some 10 ms. A chunk costs one look; a topic, a dropped or pinned chunk cost more.
LOOKS_MAX = 1000
TOPIC_COST, DROP_COST, PINNED_COST = 3, 15, 2
#: Positions of groups that are read at the cost of one look.
POSITIONS_PER_LOOK = 8
#: Marks of redriven dead letters that are read or removed at the cost of one look.
MARKS_PER_LOOK = 8
#: How long redriven dead letters are kept, and the interval between searches for their chunks.
REDRIVEN_KEEP_MS, LOOK_AGAIN_MS = KEEP_MS_DEFAULT, 3_600_000


#: The copies of live records, as an item of the job.
COPIES = "copies of records"


class Retention:
    """Runs rounds in pieces; remembers where the last piece stopped."""

    def __init__(self, job: Job) -> None:
        """`job`: a topic, a bare chunk or the copies that fail are items of it, left out while it postpones them."""
        self._job = job
        self._phases = (self._go_over_topics, self._drop_bare, self._copy)
        self._phase = 0
        #: Looks left in this piece.
        self._left = 0
        #: How often the last whole round, and this one so far, looked at a topic.
        self.topics = self._topics = 0
        #: The current topic of the round, its stage, and the position in that stage.
        self._topic_id = 0
        self._stage = self._resume = 0
        self._bare_at = b""
        self._keeping = Keeping()
        #: For each dead letter topic: the earliest time of the next search for redriven chunks.
        self._dead_letters: dict[int, int] = {}

    def run(self, tx: Tx) -> bool:
        """Runs one piece; returns whether there is more to do in this round."""
        self._left = LOOKS_MAX
        tx.state.undo.save(self, "_phase", "topics", "_topics", "_topic_id", "_stage", "_resume", "_bare_at")
        while self._phase < len(self._phases):
            if not self._phases[self._phase](tx):
                return True
            self._phase += 1
        self.topics, self._topics = self._topics, 0
        self._phase = 0
        for deleted in [topic_id for topic_id in self._dead_letters if topic_id not in tx.state.topics]:
            del self._dead_letters[deleted]
        return False

    def _go_over_topics(self, tx: Tx) -> bool:
        """Goes through topics in the order of their stored ids; returns whether the last one is done."""
        while self._left > 0:
            found = next(tx.kv.scan("topic", b"", U32.pack(self._topic_id)), None)
            if found is None:
                self._topic_id = self._stage = self._resume = 0
                return True
            topic_id = int(U32.unpack(found[0])[0])
            if topic_id != self._topic_id:
                self._topic_id, self._stage, self._resume = topic_id, 0, 0
            self._topics += 1
            self._left -= TOPIC_COST
            if not self._job.waits(tx, topic_id):
                with self._job.apart(topic_id):
                    if not self._look_at(tx, topic_id):
                        return False
            self._topic_id, self._stage, self._resume = topic_id + 1, 0, 0
        return False

    def _look_at(self, tx: Tx, topic_id: int) -> bool:
        """Continues in one topic; returns whether it is done. A lite topic has its parent's retention."""
        topic = tx.state.topics.get(topic_id)
        if topic is None or not tx.state.alive(topic_id) or topic.moving_from:
            return True  # groups that will be moved to this topic are at its beginning
        if topic.parent_id:
            if tx.state.queue_min.get((topic.topic_id, 0), 0) == tx.state.queue_max.get((topic.topic_id, 0), 0):
                return True
            parent = tx.state.topics[topic.parent_id]
            topic = topic._replace(by_age=parent.by_age, keep_ms=parent.keep_ms)
        if topic_id in tx.state.lagging:
            self._left -= floors.catch_up(tx, topic, self._left * POSITIONS_PER_LOOK) // POSITIONS_PER_LOOK
            if topic_id in tx.state.lagging:
                return False
        stages = (self._mark, self._drop, self._drop_redriven)
        while self._stage < len(stages):
            if not stages[self._stage](tx, topic):
                return False
            self._stage, self._resume = self._stage + 1, 0
        return True

    def _pay(self) -> bool:
        """Pays for a look at a chunk; False if the piece was full before it."""
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def _passed(self, tx: Tx, topic: Topic, chunk: Chunk) -> bool | None:
        """Whether every group has passed a chunk; None if the piece ends before that is known."""
        passed, positions = floors.passed(tx, topic, floors.ends_of(chunk), self._left * POSITIONS_PER_LOOK)
        self._left -= positions // POSITIONS_PER_LOOK
        if passed is None:
            self._left = 0
        return passed

    def _mark(self, tx: Tx, topic: Topic) -> bool:
        """Marks how far every group has moved; returns whether the topic is done.

        Pinned chunks count as passed too: a mark records how far the groups have moved, a pin what must stay. A stage
        that takes several pieces advances the mark of its first one.
        """
        marked_ms, at = marks.last(tx.kv, topic.topic_id)
        goes_on = self._resume > 0 and self._resume == marked_ms
        if topic.by_age or (not goes_on and 0 <= tx.now_ms - marked_ms < topic.keep_ms // marks.MARKS_MAX):
            return True
        close(tx, topic.topic_id)  # nothing may join a chunk that a mark records as passed
        moved, done = at, True
        for chunk in chunks(tx, topic.topic_id, at):
            passed = self._passed(tx, topic, chunk) if self._pay() else None
            if not passed:
                done = passed is not None
                break
            moved = chunk.position + chunk.bytes
        if moved > at:
            if goes_on:
                marks.forget(tx.kv, topic.topic_id, marked_ms)
            marks.put(tx.kv, topic.topic_id, tx.now_ms, moved)
            self._resume = tx.now_ms
        return done

    def _drop(self, tx: Tx, topic: Topic) -> bool:
        """Drops due chunks and notes pinned ones; returns whether the topic is done."""
        if topic.by_age:
            return self._drop_by_age(tx, topic)
        ripe, done = list[Chunk](), True
        limit = marks.limit(tx.kv, topic.topic_id, tx.now_ms - topic.keep_ms)
        if limit > (end := tx.state.counters[""].position):
            broken("mark_in_the_log", topic=topic.topic_id, mark=limit, end=end)
        for chunk in chunks(tx, topic.topic_id, self._resume):
            if chunk.position >= limit:
                break
            passed = self._passed(tx, topic, chunk) if self._pay() else None
            if passed is None:
                self._resume, done = chunk.position, False
            if not passed:
                break
            self._note(tx, topic, chunk, ripe)
        self._drop_all(tx, topic, ripe)
        return done

    def _drop_by_age(self, tx: Tx, topic: Topic) -> bool:
        """Drops chunks by age, whether groups have passed them or not; returns whether the topic is done."""
        ripe, done = list[Chunk](), True
        for chunk in chunks(tx, topic.topic_id, self._resume):
            if chunk.stored_ms > tx.now_ms - topic.keep_ms:
                break
            if not self._pay():
                self._resume, done = chunk.position, False
                break
            self._note(tx, topic, chunk, ripe)
        self._drop_all(tx, topic, ripe)
        return done

    def _drop_all(self, tx: Tx, topic: Topic, ripe: list[Chunk]) -> None:
        """Drops chunks; the looks that are left move groups that have not read them."""
        if ripe:
            moved = floors.drop(tx, topic, ripe, self._left * POSITIONS_PER_LOOK)
            self._left -= moved // POSITIONS_PER_LOOK

    def _note(self, tx: Tx, topic: Topic, chunk: Chunk, ripe: list[Chunk]) -> None:
        """Adds a due chunk to `ripe`; one that something points into is noted for a copy of its live records."""
        if pinned(tx, chunk):
            self._left -= PINNED_COST
            self._keeping.note(tx, topic, chunk)
        else:
            self._pay_drop(tx, topic, chunk)
            ripe.append(chunk)

    def _pay_drop(self, tx: Tx, topic: Topic, chunk: Chunk) -> None:
        """Pays for dropping a chunk: redriven dead letters cost as much again for each of them."""
        self._left -= DROP_COST
        if deadletter.has_gone(tx, topic.topic_id):
            self._left -= sum(count for _, _, count in chunk.ranges) // MARKS_PER_LOOK

    def _drop_redriven(self, tx: Tx, topic: Topic) -> bool:
        """Once an hour, drops chunks whose dead letters were all redriven; returns whether the topic is done."""
        if not deadletter.has_gone(tx, topic.topic_id) or tx.now_ms < self._dead_letters.get(topic.topic_id, 0):
            return True
        ripe, done = list[Chunk](), True
        for chunk in chunks(tx, topic.topic_id, self._resume):
            if not self._pay():
                self._resume, done = chunk.position, False
                break
            if chunk.ranges and not pinned(tx, chunk) and self._is_redriven(tx, topic, chunk):
                self._pay_drop(tx, topic, chunk)
                ripe.append(chunk)
        self._drop_all(tx, topic, ripe)
        if done:
            self._dead_letters[topic.topic_id] = tx.now_ms + LOOK_AGAIN_MS
            tx.state.undo.note(self._dead_letters.pop, topic.topic_id, None)
        return done

    def _is_redriven(self, tx: Tx, topic: Topic, chunk: Chunk) -> bool:
        """Whether all dead letters of a chunk were redriven, the last one REDRIVEN_KEEP_MS ago. Pays for each mark."""
        for queue, first, count in chunk.ranges:
            times = list(deadletter.gone_times(tx.kv, topic.topic_id, queue, first, first + count))
            self._left -= len(times) // MARKS_PER_LOOK
            if len(times) < count or max(times) + REDRIVEN_KEEP_MS > tx.now_ms:
                return False
        return True

    def _drop_bare(self, tx: Tx) -> bool:
        """Drops bare chunks that nothing points into; returns whether all were checked."""
        ripe, done = list[tuple[bytes, Topic, Chunk]](), True
        for key in tx.kv.scan_keys("bare", b"", self._bare_at):
            if self._left <= 0:
                self._bare_at, done = key, False
                break
            self._left -= 1
            if self._job.waits(tx, key):
                continue
            topic_id, position = TOPIC_AT.unpack(key)
            with self._job.apart(key):
                topic, chunk = tx.state.topics.get(topic_id), next(chunks(tx, topic_id, position), None)
                if topic is not None and chunk is not None and not pinned(tx, chunk):
                    self._left -= DROP_COST
                    ripe.append((key, topic, chunk))
        for key, topic, chunk in ripe:
            with self._job.apart(key):
                drop(tx, topic, chunk)
        if done:
            self._bare_at = b""
        return done

    def _copy(self, tx: Tx) -> bool:
        """Runs the search for pinned chunks past their time, and the copies; returns whether it is done."""
        if self._job.waits(tx, COPIES):
            return True
        with self._job.apart(COPIES):
            self._left = self._keeping.run(tx, self._left)
        return self._left > 0
