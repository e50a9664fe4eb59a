"""Commands of exactly-once sinks: see stages.py.

`access_key`: the caller's, empty without access keys: a sink belongs to the first one. `any_sink`: an operator's key,
which may use the sinks of others.
"""

from typing import NamedTuple

from popmq_server.contract.commands.lanes import LANE_ACK, LANE_SEND, command
from popmq_server.contract.commands.messages import Entries


@command(LANE_SEND, needs_room=True, entries="entries")
class Stage(NamedTuple):
    """→ for each message None or why it is refused. Stores one piece of a stage; a repeated piece stores nothing.

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


class StageName(NamedTuple):
    """A stage as its sink names it; `messages` is the number of messages that were stored for it."""

    stage_id: str
    topic: str
    messages: int = 0


@command(LANE_SEND, needs_room=True, entries="stages")
class CommitBatch(NamedTuple):
    """→ BatchCommitted. All messages of these stages will be published, each once; or none, and Refused.

    `origin`: what numbers the batches, "" = unknown. A number that is not greater than the last one is a repeat of its
    origin, and refused when it comes from another one.
    """

    sink: str
    batch: int
    stages: tuple[StageName, ...]
    access_key: str = ""
    any_sink: bool = False
    origin: str = ""


class BatchCommitted(NamedTuple):
    """`duplicate`: this batch of the sink, or a later one, was committed before. `messages`: those of the commit."""

    messages: int
    duplicate: bool


@command(LANE_ACK, entries="stages")
class DropStages(NamedTuple):
    """→ the number of stages that were dropped. An unknown one is ignored, as is one that was committed."""

    sink: str
    stages: tuple[StageName, ...]
    access_key: str = ""
    any_sink: bool = False
