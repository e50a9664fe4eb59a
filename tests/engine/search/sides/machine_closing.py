"""Topics and groups that an operator closes: new calls are refused, everything that was accepted goes on."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from popmq_server.contract import commands as ask
from tests.engine.rig import MINUTE, sending
from tests.engine.search import draws
from tests.engine.search.machine import Broker
from tests.engine.search.model.model_facts import must
from tests.engine.search.sides.machine_clients import Clients
from tests.engine.search.steps import AckStep, ChangeStep, Pick


class Closing(Clients, Broker):
    """Closes, compares and opens again. The model is not informed, since nothing that it knows may change."""

    @rule(
        topic=draws.topics,
        group=draws.groups,
        permission=st.sampled_from(["READ_ONLY", "WRITE_ONLY", "NO_ACCESS"]),
        picks=st.lists(st.integers(0, 3), min_size=1, max_size=3),
        kind=st.sampled_from(["ack", "release", "reject"]),
        minutes=st.sampled_from([0, 0, 2]),
    )
    def close_and_open_a_topic(
        self, topic: str, group: str, permission: str, picks: list[int], kind: str, minutes: int
    ) -> None:
        if topic not in self.model.topics or group not in self.model.groups:
            return
        self.set_topic(topic, permission)
        if permission != "WRITE_ONLY":
            self.is_forbidden(sending("no", topic=topic))
        if permission != "READ_ONLY":
            self.is_forbidden(ask.Pop(topic, group))
            self.is_forbidden(ask.Pull(topic, "", 0, 0))
        self.go_on(group, picks, kind, minutes)
        self.set_topic(topic, "READ_WRITE")

    @rule(
        topic=draws.topics,
        group=draws.groups,
        picks=st.lists(st.integers(0, 3), min_size=1, max_size=3),
        kind=st.sampled_from(["ack", "release", "reject"]),
        minutes=st.sampled_from([0, 0, 2]),
    )
    def close_and_open_a_group(self, topic: str, group: str, picks: list[int], kind: str, minutes: int) -> None:
        if topic not in self.model.topics or group not in self.model.groups:
            return
        self.set_group(group, False)
        self.is_forbidden(ask.Pop(topic, group))
        self.is_forbidden(ask.Available(topic, group))
        self.go_on(group, picks, kind, minutes)
        self.set_group(group, True)

    def set_topic(self, topic: str, permission: str) -> None:
        answer = self.one(ask.UpdateTopic(topic, 0, None, (("permission", permission),)))
        must(not isinstance(answer, str), "permission", answer)
        self.after()

    def set_group(self, group: str, enable: bool) -> None:
        answer = self.one(ask.UpdateGroup(group, {"consume_enable": enable}))
        must(not isinstance(answer, str), "consume enable", answer)
        self.after()

    def is_forbidden(self, command: Any) -> None:
        answer = self.one(command)
        must(answer == "FORBIDDEN", "closed", command, answer)
        self.after()

    def go_on(self, group: str, picks: Sequence[int], kind: str, minutes: int) -> None:
        """Settles leases and lets time pass as if nothing were closed; the model judges both."""
        chosen = [Pick(place, "good") for place in picks]
        if kind == "ack":
            self.commands([AckStep(group, chosen)])
        else:
            self.commands([ChangeStep(group, [(pick, kind, 0, False, 1) for pick in chosen])])
        if minutes:
            self.pass_time(minutes * MINUTE)
            self.settle()
