"""Commands for reading by queue and offset: see pull.py, offsets.py, send_back.py, consume_mode.py.

`topic` of Pull, UpdateOffsets and QueryOffsets may be `%RETRY%group+topic`: entries then have their numbers as offsets
of queue 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

from popmq_server.contract.capabilities import PULL, RESET_OFFSETS
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.commands.messages import Changed, ReadRow
from popmq_server.contract.operations import LANE_ACK, LANE_POP, Command
from popmq_server.contract.rights import ADMIN, Needs, receives
from popmq_server.errors import Refused
from popmq_server.values.records import Subscription


class Pulled(NamedTuple):
    """What a Pull found: `status` is a name of popmq.v1.PullStatus.

    `rows`: ReadRow each. `next_offset`: after everything examined. `more`: the queue has messages after it.
    `acked`: messages that `commit_offset` moved past. `left`: entries of a retry topic are left below it: finish them
    with UpdateOffsets. `topic_created_ms`: of the topic that the offsets are of.
    `full`: the read ended at the number of messages or bytes that was asked for. `bytes`: of the records that it read.
    `passed_over`: without a filter, examined messages that are not for this reader, though they are not lost.
    """

    status: str
    rows: list[ReadRow]
    next_offset: int
    min_offset: int
    max_offset: int
    more: bool = False
    acked: int = 0
    left: bool = False
    topic_created_ms: int = 0
    full: bool = False
    bytes: int = 0
    passed_over: int = 0


class Pull(Command[Pulled], Listed["Pull"], lane=LANE_POP, capability=PULL):
    """Reads one queue from `offset` on; no lease.

    `group` "": a reader without a group. `filter`: (kind, text), None = the group's own. `commit_offset`: committed in
    the queue before the read. `filter_wins`: the filter replaces the group's instead of being refused. `end_offset`:
    no message from there on; 0 = no bound. `body` False: rows have messages without their bodies, as `read_head`.
    `topic_created_ms`: of the topic that the offsets are of; 0 = any that has its name.
    `rest_bytes`: of another piece of a read that has messages already: what the read may still have. 0 = the first
    piece, whose first message always fits.
    """

    topic: str
    group: str
    queue: int
    offset: int
    max_messages: int = 32
    max_bytes: int = 3 << 20
    filter: tuple[str, str] | None = None
    commit_offset: int | None = None
    filter_wins: bool = False
    end_offset: int = 0
    body: bool = True
    topic_created_ms: int = 0
    rest_bytes: int = 0

    @property
    def bytes(self) -> int:
        """The text of its filter, for what may wait for the writer."""
        return 0 if self.filter is None else len(self.filter[1])

    def needs(self) -> Needs:
        return receives(self.topic, self.group)


class UpdateOffsets(Command[int], Listed["UpdateOffsets"], lane=LANE_ACK, entries="offsets", capability=PULL):
    """Moves committed offsets.

    `topic_created_ms`: as in Pull.
    """

    topic: str
    group: str
    offsets: dict[int, int]
    topic_created_ms: int = 0

    def needs(self) -> Needs:
        return receives(self.topic, self.group)


class OffsetsOfQueue(NamedTuple):
    """One queue: first and next offset, the group's committed offset, the first offset stored at or after the time.

    -1: the group has no position in the topic; no time was asked. `least_committed`: of all groups, -1 = there is none.
    `read_ms`: when the group last read the queue, 0 = not since the start. `bytes_behind`: see backlog.sizing.
    None: the engine does not know it.
    """

    queue: int
    min_offset: int
    max_offset: int
    committed: int
    at_timestamp: int
    least_committed: int | None = -1
    read_ms: int | None = 0
    bytes_behind: int = 0
    topic_created_ms: int = 0


class QueryOffsets(Command[list[OffsetsOfQueue]], Listed["QueryOffsets"], lane=LANE_POP, capability=PULL):
    """The offsets of all queues. `group` "": no committed offsets. `since_ms` None: no search by time."""

    topic: str
    group: str = ""
    since_ms: int | None = None

    def needs(self) -> Needs:
        return receives(self.topic, self.group, or_admin=True)


class ResetOffsets(
    Command[dict[int, int]], Listed["ResetOffsets"], lane=LANE_POP, entries="offsets", capability=RESET_OFFSETS
):
    """`to`: (name of a StartFrom, ms), for all queues; or `offsets` of some queues."""

    topic: str
    group: str
    to: tuple[str, int] | None = None
    offsets: dict[int, int] | None = None

    def needs(self) -> Needs:
        return ADMIN


class CloneOffsets(Command[dict[int, int]], Listed["CloneOffsets"], lane=LANE_POP, capability=RESET_OFFSETS):
    """Copies the offsets of `from_group` to `group`."""

    topic: str
    from_group: str
    group: str

    def needs(self) -> Needs:
        return ADMIN


class SetConsumeMode(Command[Subscription], Listed["SetConsumeMode"], lane=LANE_POP, capability=PULL):
    """`mode`: POP or PULL.

    `start`: (name of a StartFrom, ms) of a group that is new in the topic; refused for any other.
    """

    topic: str
    group: str
    mode: str
    share_number: int = 0
    start: tuple[str, int] | None = None

    def needs(self) -> Needs:
        return receives(self.topic, self.group, or_admin=True)


class SentBack(NamedTuple):
    """One message that a consumer failed to process: by queue and offset, or by its number in the retry topic.

    `delay_ms` None: the group's backoff by attempts. `reject`: to the dead letter topic.
    `attempts`: deliveries so far by its consumer's count, 0 = by the broker's. `max_attempts` 0: the group's.
    """

    queue: int
    offset: int
    retry: bool = False
    delay_ms: int | None = None
    reason: str = ""
    reject: bool = False
    attempts: int = 0
    max_attempts: int = 0


class SendBack(
    Command[Sequence[Changed | Refused]], Listed["SendBack"], lane=LANE_ACK, entries="messages", capability=PULL
):
    """→ list of (visible ms, dead lettered) or Refused, one for each message, in order.

    `Later` for those that exceed the limit of dead letters of one commit: the broker repeats the command for them.
    `topic_created_ms`: as in Pull.
    """

    topic: str
    group: str
    messages: tuple[SentBack | Refused, ...]
    client_id: str = ""
    topic_created_ms: int = 0

    @property
    def bytes(self) -> int:
        """The reasons of all messages, for what may wait for the writer."""
        return sum(len(each.reason) for each in self.messages if isinstance(each, SentBack))

    def needs(self) -> Needs:
        return receives(self.topic, self.group)
