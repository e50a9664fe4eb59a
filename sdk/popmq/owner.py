"""Owners: leases that outlive a process, for readers that must read the same again (Spark, batch jobs).

An owner is a durable name for one reader of a group. It pops with sealed tokens (epoch, part, chunk): the first pop
of a token seals a set of messages to it, every later one returns that set again, minus what is done, until `ack_up_to`
finishes the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from popmq.message import Columns
from popmq.stats import GroupStats


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a topic for one group: the next offset of each queue, and the next entry of the retry topic."""

    queues: Mapping[int, int]
    retry: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """A sealed read by an owner. `share` and `upto` matter at its first pop only."""

    owner: str
    generation: int  # from `client.owners.attach`
    epoch: int  # ≥ 1, and greater than the acked epoch
    part: int = 0
    chunk: int = 0  # 0, 1, 2 … until an answer says `end`
    share: int = 0  # maximum number of messages in all chunks of (epoch, part); 0 = no bound
    upto: Position | None = None  # not beyond this position
    topic_id: int = 0  # from `wait_available`: TopicNotFound once another topic has this name; 0 = not compared


@dataclass(frozen=True, slots=True)
class Attachment:
    """What `client.owners.attach` answers."""

    generation: int  # requests of older ones are fenced from now on
    acked_epoch: int  # 0 = none
    queues: int  # of the topic, when one was named


@dataclass(frozen=True, slots=True)
class Finished:
    """What `client.owners.ack_up_to` answers."""

    acked: int  # messages finished by this call; a repeat finishes none
    torn: int  # of the same tokens: popped by other clients after the owner's lease had expired


@dataclass(frozen=True, slots=True)
class OwnerLease:
    """What `client.owners.renew` answers."""

    tokens: int  # open
    messages: int  # bound and not done
    lease_until_ms: int


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """What `client.owners.pop_sealed` answers."""

    columns: Columns
    count: int  # messages sealed at the first pop
    end: bool  # every queue and the retry topic was at its end or at `upto`, or the share was full
    torn_stolen: int  # sealed here, then popped by another client after the owner's lease had expired
    torn_lost: int  # sealed here, but the body is gone or unreadable
    replay: bool  # this token was known


@dataclass(frozen=True, slots=True)
class Availability:
    """What `wait_available` answers."""

    ready: int  # deliverable now: unread and retry
    upto: Position
    stats: GroupStats
    topic_id: int = 0  # another one when the topic has been deleted and created again; 0 = an older broker
