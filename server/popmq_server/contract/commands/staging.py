"""Commands of exactly-once sinks: see stages.py.

`access_key`: the caller's, empty without access keys: a sink belongs to the first one. `any_sink`: an operator's key,
which may use the sinks of others.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from popmq_server.contract.capabilities import STAGES
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.commands.messages import Entries
from popmq_server.contract.operations import LANE_ACK, LANE_SEND, Command
from popmq_server.contract.rights import ADMIN, Caller, Needs, sends
from popmq_server.errors import Refused


class Stage(
    Command[Sequence[Refused | None]],
    Listed["Stage"],
    lane=LANE_SEND,
    needs_room=True,
    entries="entries",
    capability=STAGES,
):
    """Stores one piece of a stage; a repeated piece stores nothing.

    `stage_id`: one attempt of one task, for one topic. `piece`: its requests are numbered from 0. `batch`: the batch
    of `sink` that the stage is for. `entries`: as in Send. `bytes`: the size of all messages.
    """

    sink: str
    batch: int
    stage_id: str
    piece: int
    topic: str
    entries: Entries
    bytes: int = 0
    access_key: str = ""
    any_sink: bool = False

    def needs(self) -> Needs:
        return sends(self.topic)

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, access_key=caller.name, any_sink=caller.may(ADMIN[0]))


class StageName(NamedTuple):
    """A stage as its sink names it; `messages` is the number of messages that were stored for it."""

    stage_id: str
    topic: str
    messages: int = 0


class BatchCommitted(NamedTuple):
    """`duplicate`: this batch of the sink, or a later one, was committed before. `messages`: those of the commit."""

    messages: int
    duplicate: bool


class CommitBatch(
    Command[BatchCommitted], Listed["CommitBatch"], lane=LANE_SEND, needs_room=True, entries="stages", capability=STAGES
):
    """All messages of these stages will be published, each once; or none, and Refused.

    `origin`: what numbers the batches, "" = unknown. A number that is not greater than the last one is a repeat of its
    origin, and refused when it comes from another one.
    """

    sink: str
    batch: int
    stages: tuple[StageName, ...]
    access_key: str = ""
    any_sink: bool = False
    origin: str = ""

    def needs(self) -> Needs:
        return _of_stages(self.stages)

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, access_key=caller.name, any_sink=caller.may(ADMIN[0]))


class DropStages(Command[int], Listed["DropStages"], lane=LANE_ACK, entries="stages", capability=STAGES):
    """An unknown one is ignored, as is one that was committed."""

    sink: str
    stages: tuple[StageName, ...]
    access_key: str = ""
    any_sink: bool = False

    def needs(self) -> Needs:
        return _of_stages(self.stages)

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, access_key=caller.name, any_sink=caller.may(ADMIN[0]))


def _of_stages(stages: Sequence[StageName]) -> Needs:
    """Each stage is found by its topic too, so the topics of the request are those of the messages."""
    return tuple(need for topic in {name.topic for name in stages} for need in sends(topic)) or sends("")
