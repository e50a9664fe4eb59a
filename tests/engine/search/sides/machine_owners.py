"""What owners do: attach, read with tokens, come late, finish."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from popmq_server.contract import commands as ask
from tests.engine.rig import HOUR, MINUTE, SECOND
from tests.engine.search import draws
from tests.engine.search.draws import NO_GROUP, TOPICS
from tests.engine.search.machine import Broker
from tests.engine.search.model import model_facts as facts
from tests.engine.search.model.model_facts import must
from tests.engine.search.sides.machine_clients import Clients
from tests.engine.search.steps import PopStep, SealStep


class Readers(Clients, Broker):
    """Rules of sealed tokens."""

    @rule(
        group=draws.groups,
        name=draws.owners,
        topic=draws.topics,
        part=st.integers(0, 1),
        share=st.sampled_from([0, 0, 4]),
        bounded=st.booleans(),
        finished=st.booleans(),
    )
    def read_a_part(
        self,
        group: str,
        name: str,
        topic: str,
        part: int,
        share: int = 0,
        bounded: bool = False,
        finished: bool = False,
    ) -> None:
        """A reader that goes on chunk by chunk, as Spark's does, reads once more what it has read, and finishes it."""
        if name not in self.model.groups.get(group, NO_GROUP).owners:
            self.attach(group, name, 30 * SECOND, topic, None)
        for chunk in (0, 1, 2, 0, 1):
            seal = SealStep(topic, group, owner=name, part=part, chunk=chunk, share=share, bounded=bounded)
            self.commands([seal])
        if finished:
            self.ack_up_to(group, name, 0, 1)
            self.commands([SealStep(topic, group, owner=name, ahead=0, part=part)])

    @rule(
        group=draws.groups,
        name=draws.owners,
        topic=draws.topics,
        thief=draws.sizes,
        back=st.sampled_from(["replay", "renew", "new"]),
    )
    def read_late(self, group: str, name: str, topic: str, thief: int, back: str) -> None:
        """The reader's lease ends, others pop its messages, and it comes back with an old token or a new one."""
        self.read_a_part(group, name, topic, 0)
        generation, _ = self.owner(group, name)
        self.pass_time(HOUR)
        self.commands([PopStep(topic, group, (), thief, invisible_ms=HOUR, client="thief")])
        if back == "renew":
            self.renew(group, name, 0, MINUTE)
        if back == "new":
            self.commands([SealStep(topic, group, messages=32, owner=name, ahead=2, part=1, chunk=2)])
        self.read_a_part(group, name, topic, 0)
        must(self.owner(group, name)[0] == generation or group not in self.model.groups, "generation")

    def attach(self, group: str, name: str, lease_ms: int, topic: str, start: tuple[str, int] | None) -> None:
        answer = self.one(ask.AttachOwner(group, name, lease_ms, topic, start))
        self.model.attach(group, name, lease_ms, topic, start, answer)
        self.after()

    def renew(self, group: str, name: str, behind: int, lease_ms: int) -> None:
        generation = max(1, self.owner(group, name)[0] - behind)
        answer = self.one(ask.RenewOwner(group, name, generation, lease_ms))
        self.model.renew(group, name, generation, lease_ms, answer)
        self.after()

    @rule(
        group=draws.groups,
        name=draws.owners,
        lease_ms=st.sampled_from([SECOND, 30 * SECOND, HOUR]),
        topic=st.sampled_from(["", *TOPICS]),
        start=st.sampled_from([None, ("LATEST", 0), ("EARLIEST", 0)]),
        behind=st.sampled_from([None, None, 0, 0, 1, -1]),
    )
    def attach_or_renew(
        self, group: str, name: str, lease_ms: int, topic: str, start: tuple[str, int] | None, behind: int | None
    ) -> None:
        if behind is None:
            self.attach(group, name, lease_ms, topic, start)
        else:
            self.renew(group, name, behind, lease_ms)

    @rule(
        group=draws.groups,
        name=draws.owners,
        behind=st.sampled_from([0, 0, 0, 0, 1]),
        ahead=st.sampled_from([0, 1, 1, 1, 2]),
    )
    def ack_up_to(self, group: str, name: str, behind: int, ahead: int) -> None:
        generation, acked = self.owner(group, name)
        epoch = acked + ahead
        answer = self.one(ask.AckUpTo(group, name, max(1, generation - behind), epoch))
        told = answer if isinstance(answer, str) else answer[:2]
        self.model.ack_up_to(group, name, max(1, generation - behind), epoch, told)
        self.after()

    @rule(group=draws.groups, name=draws.owners, known=st.booleans())
    def release_owner(self, group: str, name: str, known: bool) -> None:
        generation = self.owner(group, name)[0] if known else 0
        self.model.release_owner(group, name, generation, self.one(ask.ReleaseOwner(group, name, generation)))
        self.after()

    @rule(group=draws.groups, topic=draws.topics, bounded=st.booleans())
    def available(self, group: str, topic: str, bounded: bool) -> None:
        upto = self.position(group, topic) if bounded else None
        answer = self.one(ask.Available(topic, group, upto))
        refused = self.model.unresolved(topic, group)
        if refused:
            must(answer == refused, "available", answer)
        else:
            self.model.bind(group, topic)
            told = facts.Position(*upto) if upto else None
            ends = dict(enumerate(map(len, self.model.topics[topic].queues)))
            expected = self.model.available(group, topic, told), (ends, self.model.entered)
            must(answer[:2] == expected, "available", answer)
            self.positions[(group, topic)] = answer[1]
        self.after()
