"""Errors of the broker. A caller sees only `Refused` and `Declined`; any other exception in a command becomes INTERNAL.

    BrokerError
    ├── Refused             a request is invalid, or cannot be served now: answered with its code, changes nothing
    │   ├── NoRoom            STORAGE_FULL
    │   ├── KeyLimited        RATE_LIMITED by an access key (access/key_limits.py)
    │   └── Later             a marker: the broker runs the entry again in the next commit; no caller sees it
    ├── Declined            a refusal with a code of apache.rocketmq.v2 (protocols/rocketmq/status.py)
    ├── StartError          the broker cannot start: one sentence with the cure, exit code 78 (EX_CONFIG)
    │   ├── BrokenStore       a row breaks an invariant: `popmq check --repair` (invariants/broken.py)
    │   └── UnreadableRow     a row cannot be read: `popmq check` (store/row_formats.py, datafile/checksums.py)
    └── EngineFailed        the engine is lost: the process ends with code 74 (EX_IOERR)
        └── CommitFailed      a commit failed although the disk has room

    internal, always caught     defined in              becomes
    MapFull, DiskFault          store/lmdb.py           STORAGE_FULL, or CommitFailed
    NoMapping                   store/folder.py         StartError; INVALID_FIELD for SetMaxSize
    Poisoned                    writer/batch.py         a second run of the batch, without the command that failed
    TooManyPoisoned             writer/batch.py         the batch runs in parts, a part in halves
    JobFailed                   state/jobs.py           a log line; the job runs again later
    BrokenInvariant             invariants/broken.py    INTERNAL; JobFailed; a StartError, BrokenStore
    NoSuchLease                 delivery/revive.py      a log line; the entry belongs to no lease, and is passed over
    DamagedPage                 datafile/walk.py        a finding of `popmq check`, or a damaged page
    CronError, ZoneError        schedules/cron.py       INVALID_FIELD
    NotOpened                   ports.py                StartError, or a default port that is left out
    SettingError                settings/               a sentence, and exit code 2
    BadText                     cluster/signed/secrets.py  INVALID_HANDLE; INVALID_FIELD for a transaction id
    Unsound                     fsck/compact.py         a sentence of `popmq compact`; nothing is changed

`Refused.code` is the name of a popmq.v1.Code; protocols/refusals.py maps it to the gRPC status of the contract.
"""

import functools
import shlex
from collections.abc import Iterable

RETRYABLE = frozenset(
    {"STORAGE_FULL", "BUSY", "IN_FLIGHT_LIMIT", "POLLING_FULL", "RATE_LIMITED", "LITE_TOPIC_QUOTA", "UNAVAILABLE"}
)


class BrokerError(Exception):
    """Base class of the errors that this package raises."""


class StartError(BrokerError):
    """The broker cannot start; the message names the cure."""


class UnreadableRow(StartError):
    """A row of a table is damaged."""

    def __init__(self, table: str, key: bytes, why: str) -> None:
        row = f"row {key.hex()} of table {table!r}" if key else f"a row of table {table!r}"
        super().__init__(
            f"{row} cannot be read ({why}): the store is damaged; start on a backup, with the release that wrote this "
            "store if it is a later one, or without the row: `popmq check --repair`"
        )
        self.table = table
        self.key = key


class EngineFailed(BrokerError):
    """The engine is lost, and the process ends. `recovery`: what happens then."""

    recovery = "a restart begins again"


class CommitFailed(EngineFailed):
    """A commit failed with room on the disk. It is not retried."""

    recovery = "a restart recovers what is on disk"


class Refused(BrokerError):
    """A request, or one entry of it, that is not executed. `action` says what the caller can do about it."""

    def __init__(self, code: str, message: str, *, field: str = "", action: str = "", retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.action = action
        self.retry_after_ms = retry_after_ms

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in RETRYABLE


invalid = functools.partial(Refused, "INVALID_FIELD")


def topic_not_found(name: str, field: str = "topic") -> Refused:
    """The action is the command that creates the topic, if a user can create it."""
    why = f"there is no topic {name!r}"
    if name.startswith("%DLQ%"):
        why += ", which comes with its group, and if it is deleted with the group's next dead letter"
    return Refused("TOPIC_NOT_FOUND", why, field=field, action=_topic_command(name))


def schedule_not_found(name: str, field: str = "name") -> Refused:
    """The action is the command that lists the schedules."""
    return Refused("SCHEDULE_NOT_FOUND", f"there is no schedule {name!r}", field=field, action="popmq schedule list")


def group_not_found(name: str, field: str = "group") -> Refused:
    """The action is the command that creates the group."""
    return Refused("GROUP_NOT_FOUND", f"there is no group {name!r}", field=field, action=_create("group", name))


def client_not_found(client: str, topic: str = "") -> Refused:
    """It has no stream to a broker or gateway that can be asked. `topic`: that its access key has to allow, if any."""
    having = f" whose access key may receive topic {topic!r}" if topic else ""
    return Refused(
        "CLIENT_NOT_FOUND",
        f"no official RocketMQ 5 client {client!r}{having} has a stream to this broker",
        field="client_id",
        action="see the clients that are connected: popmq sessions",
    )


def message_not_there(topic: str, queue: int, offset: int) -> Refused:
    """MESSAGE_NOT_FOUND for a place without a message."""
    return Refused(
        "MESSAGE_NOT_FOUND",
        f"queue {queue} of topic {topic!r} has no message at offset {offset}",
        field="offset",
        action=f"find its place by its id or a key: popmq message {shlex.quote(topic)} --id ID",
    )


def _topic_command(name: str) -> str:
    """How a topic of this name is created. The prefixes and the name are those of values/message.py."""
    if name.startswith("%DLQ%"):
        return _create("group", name.removeprefix("%DLQ%"))  # a dead-letter topic is created with its group
    if name.startswith("%RESULT%"):
        group = shlex.quote(name.removeprefix("%RESULT%"))
        return f"let the group keep results: popmq group update {group} --results-keep 1h"
    if name.startswith("%RETRY%"):
        return "name the topic itself: its retries are read with it"
    if name == "TRANS_CHECK_MAX_TIME_TOPIC":
        return "the broker creates it when it gives up the first half message; it has not done so yet"
    return _create("topic", name)


def _create(kind: str, name: str) -> str:
    """A command line to paste. After `--` a name may begin with a dash."""
    return f"popmq {kind} create {'-- ' if name.startswith('-') else ''}{shlex.quote(name)}"


def no_queue(topic: str, queues: int, queue: int, field: str) -> Refused:
    """INVALID_FIELD for a queue that the topic does not have. Queues are numbered from 0."""
    last = queues - 1
    allowed = f"name a queue from 0 to {last}" if last else "name queue 0"
    return invalid(f"topic {topic!r} has {queues} queues, no queue {queue}", field=field, action=allowed)


def not_one_of(field: str, value: object, allowed: Iterable[str]) -> Refused:
    """INVALID_FIELD for a value that the contract does not define; the action lists the allowed ones."""
    return invalid(f"{field} has no value {value}", field=field, action=f"use one of {', '.join(allowed)}")


def bad_handle(field: str, why: str) -> Refused:
    """Malformed, damaged, or of another group."""
    return Refused(
        "INVALID_HANDLE",
        why,
        field=field,
        action="pass the handle unchanged, as Pop returned it, and the group that popped it",
    )


def lapsed(field: str) -> Refused:
    """A late ack is a normal outcome: it has its own code and changes nothing."""
    return Refused(
        "HANDLE_LAPSED",
        "this delivery is over: it was acked, released or rejected, or its lease expired",
        field=field,
        action="drop the message; if it was not acked, a later Pop delivers it again",
    )


def unavailable(why: str) -> Refused:
    """A refusal after which the same request may be sent again."""
    return Refused("UNAVAILABLE", why, action="retry with backoff", retry_after_ms=200)


def not_written(why: str) -> Refused:
    """UNAVAILABLE: a full map or disk has no page left even for a change that frees some."""
    return Refused(
        "UNAVAILABLE",
        f"the store is full: {why}",
        action="raise the limit (`popmq max-size`) or free disk; a retry then succeeds",
        retry_after_ms=200,
    )


MAKE_ROOM = (
    "ack messages, purge a topic, shorten its retention (until it ends acked messages are kept, too), free disk, "
    "or raise the limit (`popmq max-size`)"
)


#: A larger limit does not help, nor do acks: the data file keeps its freed pages.
FREE_DISK = "free space on the disk of the data folder, or move the folder to a larger one; acks and deletes free none"


class NoRoom(Refused):
    """STORAGE_FULL: the store has no room for this. `why` contains the figures, `action` what makes room."""

    def __init__(self, why: str, action: str = MAKE_ROOM) -> None:
        super().__init__("STORAGE_FULL", why, retry_after_ms=1000, action=action)


class Later(Refused):
    """BUSY: the entry did not fit into this commit, by its dead letters or by the number of entries before it.

    The broker resubmits the entry (in_pieces.py).
    """

    def __init__(self) -> None:
        super().__init__(
            "BUSY",
            "this entry does not fit into one commit",
            retry_after_ms=100,
            action="retry with backoff",
        )


def not_a_page(text: str) -> Refused:
    """INVALID_FIELD for a page token that did not come from this list."""
    return invalid(
        f"page token {text!r} does not belong to this list",
        field="page_token",
        action="pass next_page_token of the page before, or start without a token",
    )
