"""Random histories of lite topics: sent to, read by groups, idle for hours, removed and created again, over crashes."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.rules.topics.log import is_readable
from popmq_server.values.handles import make_handle
from tests.engine import lites
from tests.engine.dead_letters import all_again
from tests.engine.rig import HOUR, MINUTE, SECOND, Delivery, Rig
from tests.engine.search.model import model_lites
from tests.engine.search.model.model_facts import Handle, must
from tests.known import known

NAMES = ("ann", "bob", "cat", "dan")
names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)
groups = st.sampled_from(["g", "g", "h"])
KEEP_MS, TTL_MS = 2 * HOUR, 3 * HOUR
MOST = 32


class LiteLives(RuleBasedStateMachine):
    """One LITE topic, two groups."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="popmq-lites-"))
        self.rig = Rig(self.folder / "data", map_bytes=1 << 26)
        self.make_topic()
        for group in ("g", "h"):
            self.rig.group(group)
        self.model = model_lites.Lites(self.rig.now, KEEP_MS, TTL_MS)
        self.sent = 0

    def make_topic(self) -> None:
        self.rig.do(ask.CreateTopic("chat", 1, False, KEEP_MS, "LITE", lite_ttl_ms=TTL_MS))

    def teardown(self) -> None:
        self.rig.abandon()
        shutil.rmtree(self.folder)

    # ── Clients ──────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(names=names, count=st.integers(1, 4))
    def send(self, names: list[str], count: int) -> None:
        for name in names:
            for _ in range(count):
                self.sent += 1
                text = f"{name}:{self.sent}"
                (place,) = lites.send(self.rig, text).places or ()
                assert isinstance(place, ask.Place)
                self.model.send(name, text, place.offset)
        self.settle()

    @rule(group=groups, names=names, long=st.booleans())
    def pop(self, group: str, names: list[str], long: bool) -> None:
        self.popped(group, names, long)

    def popped(self, group: str, names: list[str], long: bool, asked: list[str] | None = None) -> list[Delivery]:
        """`asked`: the names that the Pop has, if it has others than the lite topics that it gets."""
        invisible_ms = 12 * HOUR if long else MINUTE
        rows = lites.pop(self.rig, *(asked or names), group=group, max_messages=MOST, invisible_ms=invisible_ms)
        told = [(row.body, row.offset, row.lease) for row in rows]
        self.learn()
        self.model.pop(group, names, MOST, told, self.rig.now + invisible_ms)  # type: ignore[arg-type]
        self.settle()
        return rows

    @rule(group=groups, long=st.booleans())
    def pop_all(self, group: str, long: bool) -> None:
        """A Pop of all lite topics of the topic gets what one gets that names each of them."""
        self.popped(group, [*NAMES], long, asked=["*"])

    @rule(group=groups, how=st.sampled_from(["ack", "ack", "release", "reject"]), count=st.integers(1, 6))
    def finish(self, group: str, how: str, count: int) -> None:
        """Settles deliveries one by one; a handle lapses when an earlier message of its lite topic is released."""
        for _ in range(count):
            if leased := self.model.leases(group):
                name, offset, handle = leased[0]
                self.finish_one(group, name, offset, Handle(*handle), how)
        self.settle()

    def finish_one(self, group: str, name: str, offset: int, handle: Handle, how: str) -> None:
        if how == "ack":
            results = self.rig.do(ask.Ack(group, (make_handle(*handle),))).results
            must(results == [None], "ack", results)
        else:
            change = ask.Change(make_handle(*handle), how, 0, False, "")
            (result,) = self.rig.do(ask.ChangeInvisibleTime(group, (change,)))
            must(isinstance(result, tuple), how, result)
        self.model.finish(group, name, offset, how)

    @rule(
        client=st.sampled_from("cd"),
        action=st.sampled_from(["ADD", "REPLACE", "REMOVE", "DROP"]),
        names=names,
        every=st.booleans(),
    )
    def subscribe(self, client: str, action: str, names: list[str], every: bool) -> None:
        """Changes a subscription. It keeps lite topics from removal; the model knows only what groups have read."""
        lites.sync(self.rig, client, action, *names, *("*" for _ in range(every)))
        self.settle()

    # ── Operators ────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(group=groups)
    def redrive(self, group: str) -> None:
        """Redrives a millisecond later: a dead letter knows its lite topic only by its name and its time of death."""
        self.pass_time(1)
        failures = all_again(self.rig, group=group)
        must(len(failures) == self.model.redrive(group), "dead letters that stay", failures, self.model.dead)
        self.settle()

    @rule()
    def purge(self) -> None:
        self.pass_time(1)
        self.rig.do(ask.PurgeTopic("chat"))
        self.model.forget_all()
        self.settle()

    @rule(which=st.sampled_from(["chat", "g", "h"]))
    def create_again(self, which: str) -> None:
        """Deletes the topic or a group and creates it again. Subscriptions are kept by names, so they go on."""
        self.pass_time(1)
        if which == "chat":
            self.rig.do(ask.DeleteTopic("chat"))
            self.make_topic()
            self.model.forget_topic()
        else:
            self.rig.do(ask.DeleteGroup(which))
            self.rig.group(which)
            self.model.forget_group(which)
        self.settle()

    @rule(clean=st.booleans())
    def start_again(self, clean: bool) -> None:
        if clean:
            self.rig.restart()
        else:
            self.rig.crash()

    # ── Time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(ms=st.sampled_from([SECOND, MINUTE, MINUTE, 10 * MINUTE, HOUR, HOUR]), times=st.integers(1, 4))
    def time_passes(self, ms: int, times: int) -> None:
        for _ in range(times):
            self.pass_time(ms)
            self.settle()

    @rule(group=groups, names=names, back=st.booleans(), hours=st.integers(3, 8))
    def what_is_not_finished_is_left_alone_for_hours(
        self, group: str, names: list[str], back: bool, hours: int
    ) -> None:
        """Leased or released messages are left alone for longer than messages and idle lite topics are kept."""
        self.send(names, 2)
        self.popped(group, names, True)
        if back:
            self.finish(group, "release", MOST)
        self.time_passes(HOUR, hours)
        self.popped(group, names, True)
        self.finish(group, "ack", MOST)

    @rule(names=names)
    def all_is_done_and_nobody_comes(self, names: list[str]) -> None:
        """All is acked and idle: every lite topic is removed after its time, and a new message creates it again."""
        self.time_passes(13 * HOUR, 1)  # leases and subscriptions have ended
        for group in ("g", "h"):
            while self.popped(group, list(NAMES), True):
                self.finish(group, "ack", MOST)
        for ms in (2 * MINUTE, MINUTE, TTL_MS, MINUTE):
            self.time_passes(ms, 1)
        must(not self.model.lives, "idle, and still there", self.model.lives)
        self.send(names, 1)

    def pass_time(self, ms: int) -> None:
        self.rig.skip(ms)
        self.model.pass_time(ms)

    def settle(self) -> None:
        """Leases run out before anything is removed: time has its turn as a whole."""
        self.model.timed()
        self.rig.settle()
        self.learn()

    def learn(self) -> None:
        state = self.rig.core.state
        parent, found = state.ids[("t", "chat")], dict[str, set[int]]()
        with self.rig.reading() as kv:
            for (of, name), topic_id in state.lite_ids.items():
                if of == parent:
                    end = state.queue_max.get((topic_id, 0), 0)
                    found[name] = {offset for offset in range(end) if is_readable(kv, topic_id, 0, offset)}
        self.model.learn(found)

    # ── What must hold after every step ──────────────────────────────────────────────────────────────────────────

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        must(lites.lites(self.rig) == len(self.model.lives), "lite topics", self.model.lives)
        for row in self.rig.look(queries.Groups("chat", "")):
            readers = [life.readers[row.group] for life in self.model.lives.values() if row.group in life.readers]
            leased, waiting = sum(len(one.leased) for one in readers), sum(len(one.waiting) for one in readers)
            must((row.in_flight, row.waiting) == (leased, waiting), "numbers", row, leased, waiting)
            must(row.acked == self.model.acked.get(row.group, 0), "acked", row, self.model.acked)
            must(known(row.dropped) <= self.model.missed.get(row.group, 0), "dropped", row, self.model.missed)
            must(row.dead == len(self.model.dead.get(row.group, [])), "dead letters", row, self.model.dead)
        findings = self.rig.findings()
        must(not findings, *findings)
