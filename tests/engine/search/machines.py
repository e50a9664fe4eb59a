"""The machines: one model, searched from several sides, since one machine with every rule goes nowhere deeply."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.engine.rig import HOUR, MINUTE
from tests.engine.search import draws
from tests.engine.search.draws import GROUPS
from tests.engine.search.machine import choosing
from tests.engine.search.sides.machine_ages import CHOSEN, Ageing
from tests.engine.search.sides.machine_closing import Closing
from tests.engine.search.sides.machine_operators import Filtering, Moving, Operators, Repairing
from tests.engine.search.sides.machine_owners import Readers
from tests.engine.search.sides.machine_pulls import Pulling
from tests.engine.search.sides.machine_stages import Staging
from tests.engine.search.sides.machine_times import Timing
from tests.engine.search.steps import AckStep, PopStep

EVERY_KIND = ("normal", "unique", "fifo", "delay", "transaction", "priority")


class Plain(Readers, Repairing, Closing, Operators):
    """Ordinary topics: leases, retries, owners."""

    mortal = True


class Ordered(Readers, Repairing, Operators, Filtering):
    """FIFO topics: order, locks, owners; messages that a filter passes over do not lock."""

    kinds = ("fifo",)
    mortal = True


class Timed(Timing, Closing, Operators):
    """Topics that keep messages for later."""

    kinds = ("delay", "transaction", "fifo", "priority")
    mortal = True


class Moved(Readers, Filtering, Moving, Pulling):
    """Groups that are reset, switch to pulling and back, and change their filters."""

    kinds = ("normal", "fifo", "normal", "fifo", "priority")


class Sinks(Readers, Staging, Operators):
    """Batches of sinks, among sends and pops of others."""

    kinds = ("normal", "unique", "fifo", "unique", "priority")


class Everything(Readers, Timing, Staging, Closing, Operators, Filtering, Moving, Pulling):
    """All rules, over all types of topics."""

    kinds = EVERY_KIND


@choosing(*CHOSEN)
class Aged(Readers, Ageing):
    """Topics that keep messages for hours; groups come late and are put back, dead letters outlive their messages."""

    kinds = ("normal", "fifo", "normal")


class Forgetful(Readers, Staging, Operators):
    """Messages are dropped a minute after every group has passed them. Groups that read from the start miss none."""

    kinds = ("normal", "fifo", "normal")
    keep_ms = MINUTE
    operated = False

    @rule(
        topic=draws.topics,
        held=st.integers(0, 5),
        unread=st.sampled_from([0, 0, 1]),
        minutes=st.sampled_from([3, 3, 70]),
    )
    def everybody_reads_and_time_passes(self, topic: str, held: int, unread: int, minutes: int) -> None:
        """Each group acks all messages but one, and may leave one unread; the leased one stays leased for long."""
        for group in GROUPS:
            messages = max(1, self.model.ready(group, topic) - unread)
            handles = self.popped(PopStep(topic, group, (), messages, invisible_ms=13 * HOUR))
            self.commands([AckStep(group, [one for place, one in enumerate(handles) if place != held])])
        self.much_time_passes(minutes)

    @rule(topic=draws.topics, group=draws.groups, minutes=st.sampled_from([3, 70]))
    def some_wait_for_what_is_held(self, topic: str, group: str, minutes: int) -> None:
        """Held messages are not dropped, however long it takes."""
        handles = self.popped(PopStep(topic, group, (), 1, invisible_ms=13 * HOUR))
        self.send_some(topic, [2], "a")
        self.everybody_reads_and_time_passes(topic, 9, 0, minutes)
        self.commands([AckStep(group, handles)])
        self.pop_and_ack(group, topic, 32, False)

    def much_time_passes(self, minutes: int) -> None:
        for _ in range(3):
            self.pass_time(minutes * MINUTE // 3)
            self.settle()
