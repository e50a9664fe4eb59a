"""The machine of a map that is nearly full: nothing is injected, each lack of pages is a real one.

Its model is that of full_map.py: which messages were sent, acked and dead-lettered. What the space rules permit
it takes as an answer: STORAGE_FULL for what needs room, a dead letter that waits for room. What frees room is
never refused. After each step nothing is missing and the checker is content; in the end room is made, and all heals.
"""

import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from popmq_server.contract import commands as ask
from tests.engine.rig import SECOND
from tests.engine.search.full_map import GROUPS, TOPICS, History, made
from tests.known import known

seeds = st.integers(0, 2**32 - 1)
counts = st.integers(1, 4)
#: Pops or acks of one commit batch.
many = st.integers(2, 12)
#: Below this share of the map small requests are not refused for room: sends leave 15 %.
ROOMY = 0.8


class Full(RuleBasedStateMachine):
    """Clients and time in a map of 16 MiB; operators make room, and others take it again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="popmq-machine-"))
        self.history = History(0, self.folder / "data")

    @initialize(seed=seeds)
    def the_map_is_nearly_full(self, seed: int) -> None:
        self.history.chance = random.Random(seed)
        self.history.fill()

    def teardown(self) -> None:
        try:
            self.history.heal()
            self.history.drain()
            assert self.history.rig.findings() == []
        finally:
            self.history.rig.abandon()
            shutil.rmtree(self.folder)

    # ── Clients and time ─────────────────────────────────────────────────────────────────────────────────────────

    def draw(self, seed: int) -> History:
        self.history.chance = random.Random(seed)
        return self.history

    @rule(seed=seeds, count=counts)
    def send(self, seed: int, count: int) -> None:
        history = self.draw(seed)
        for _ in range(count):
            history.send()

    @rule(seed=seeds, count=counts)
    def pop(self, seed: int, count: int) -> None:
        history = self.draw(seed)
        for _ in range(count):
            history.pop()

    @rule(seed=seeds, count=many)
    def equal_pops_of_one_batch(self, seed: int, count: int) -> None:
        self.draw(seed).equal_pops(count)

    @rule(seed=seeds, count=many)
    def equal_acks_of_one_batch(self, seed: int, count: int) -> None:
        self.draw(seed).equal_acks(count)

    @rule(seed=seeds)
    def ack(self, seed: int) -> None:
        self.draw(seed).ack()

    @rule(seed=seeds, count=counts)
    def change(self, seed: int, count: int) -> None:
        history = self.draw(seed)
        for _ in range(count):
            history.change()

    @rule(seed=seeds)
    def end(self, seed: int) -> None:
        self.draw(seed).end()

    @rule(seed=seeds)
    def redrive(self, seed: int) -> None:
        self.draw(seed).redrive()

    @rule(seed=seeds)
    def time_passes(self, seed: int) -> None:
        self.draw(seed).time_passes()

    @rule(seed=seeds)
    def crash(self, seed: int) -> None:
        self.draw(seed).crash()

    @rule(seed=seeds)
    def a_small_message_is_refused_only_where_there_is_little_room(self, seed: int) -> None:
        """A small message is refused only if little room is left, whatever earlier requests were refused for."""
        history = self.draw(seed)
        before = history.used()
        entry = made(f"m{history.number()}", 100)
        result = history.rig.run(ask.Send("normal", (entry,), "", 0, len(entry.data)))[0]
        if isinstance(result, ask.Sent):
            history.sent["normal"].add(entry.message_id)
        else:
            assert before > ROOMY, f"{before:.0%} of the map are in use: {result}"

    # ── Operators ────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(name=st.sampled_from(list(TOPICS)))
    def purge(self, name: str) -> None:
        """Never refused. Messages that are dead letters already stay so, and may be redriven."""
        history = self.history
        history.rig.do(ask.PurgeTopic(name))
        self.forget(name)
        history.settle()

    @rule(share=st.sampled_from([0.85, 0.9, 0.95]))
    def somebody_fills_it_up(self, share: float) -> None:
        """Fills the map as far as sends, or records of the broker itself, are allowed to."""
        history = self.history
        while history.used() < share:
            entry = made(f"ballast{history.number()}", 100_000)
            if not isinstance(history.rig.run(ask.Send("ballast", (entry,), "", 0, len(entry.data)))[0], ask.Sent):
                return

    @rule()
    def the_ballast_is_purged(self) -> None:
        self.history.rig.do(ask.PurgeTopic("ballast"))
        self.history.settle()

    @rule(seed=seeds, group=st.sampled_from(list(GROUPS)), name=st.sampled_from(list(TOPICS)))
    def all_of_a_topic_is_leased_and_the_leases_end(self, seed: int, group: str, name: str) -> None:
        """All messages of a topic are leased and the leases end at once, which dead-letters many messages."""
        history = self.draw(seed)
        asked = ask.Pop(name, group, max_messages=64, max_bytes=8 << 20, invisible_ms=SECOND)
        for _ in range(20):
            history.popped(group, name, answer := history.rig.run(asked)[0])
            if not getattr(answer, "rows", ()):
                break
        history.rig.skip(2 * SECOND)
        history.settle()

    def forget(self, name: str) -> None:
        """Removes purged messages from the model. A dead letter of one group counts as done for the other groups."""
        history = self.history
        dead = {group: {letter.message_id for letter in history.rig.dead(group)} for group in GROUPS}
        left = history.sent[name] & set().union(*dead.values())
        for group in GROUPS:
            history.done[(group, name)] |= left - dead[group]
        history.sent[name] = left
        if name == "transaction":
            history.halves = {}

    # ── What must be true ────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def nothing_is_missing(self) -> None:
        history = self.history
        for group in GROUPS:
            dead = {letter.message_id for letter in history.rig.dead(group)}
            for name, sent in history.sent.items():
                missing = sent - history.done[(group, name)] - dead
                left = history.rig.numbers(group, name)
                held = left.backlog + known(left.delayed)
                assert len(missing) == held, f"{group} in {name}: {missing}, and {left}"
                assert known(left.dead_blocked) <= known(left.in_flight)

    @invariant()
    def the_checker_is_content(self) -> None:
        assert self.history.rig.findings() == []
