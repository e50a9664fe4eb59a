"""What is sent, and what is delivered. Times are milliseconds since 1970 UTC (`…_ms`), durations seconds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self

from popmq.duration import Duration, seconds_of, seconds_or_none
from popmq.outcome import ACK, Outcome, Rejected, Released, Result

#: The levels of delay that RocketMQ has, by name, in seconds. `Message.delay` takes any duration.
DELAY_LEVELS: Mapping[str, float] = {
    **{f"{count}s": float(count) for count in (1, 5, 10, 30)},
    **{f"{count}m": count * 60.0 for count in (*range(1, 11), 20, 30)},
    **{f"{count}h": count * 3600.0 for count in (1, 2)},
}


#: What may be the body of a message. A str is sent as UTF-8.
Body = bytes | bytearray | memoryview | str
BODY_TYPES = (bytes, bytearray, memoryview, str)


def wrong_body(value: object, place: str = "the body of a message") -> TypeError:
    """The error for a value that cannot be a body: bytes(5) would be five zeros, and list({…}) the keys of a dict."""
    return TypeError(
        f"{place} is of type {type(value).__name__}: give str or bytes, or popmq.Message.json(value) to send it as JSON"
    )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """W3C trace context: `traceparent` and `tracestate`, of ≤ 512 bytes each."""

    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """What a producer sends.

        Message(b"…", key="AA1", tag="AA")
        Message("text")                                  # as UTF-8
        Message.json({"flight": 1}, key="AA1")           # any value that JSON has; `delivery.json()` reads it
        Message("later", delay="90s")    # or seconds, or a timedelta; or deliver_at=datetime(2030, 1, 1, tzinfo=UTC)

    The broker stores it byte for byte and does not read `body` (1 byte – 4 MiB). Another type of body raises TypeError.
    The type of the topic decides which fields may be set: a FIFO topic requires `message_group`, a LITE topic
    `lite_topic`; a PRIORITY topic has `priority`; all types except NORMAL and LITE take delayed messages and
    transactions.
    """

    body: Body
    key: str = ""  # for look-ups, ≤ 128 bytes
    tag: str = ""  # one word for filters, ≤ 64 bytes
    properties: Mapping[str, str] = field(default_factory=dict)  # ≤ 128, ≤ 64 KiB in all
    more_keys: Sequence[str] = ()  # with `key` ≤ 16
    message_id: str = ""  # ≤ 128 bytes, unique in its topic; empty: the client makes one
    message_group: str = ""  # FIFO topics: messages of one message group keep their order; ≤ 64 bytes
    deliver_at: datetime | float | None = None  # not before this time, or seconds since 1970 UTC; past: at once
    delay: Duration = 0.0  # instead: so long after it was stored: seconds, a timedelta, or "90s", "1h30m"
    priority: int = 0  # PRIORITY topics: higher first, from 0
    transaction: bool = False  # a half message, invisible until it is committed: see `client.transaction`
    encoding: str = ""  # how the body is encoded: GZIP, ZSTD, LZ4, ZLIB, or as it is
    trace_context: TraceContext | None = None
    born_ms: int = 0  # when it was created; 0: when it is sent
    lite_topic: str = ""  # LITE topics: the small ordered topic that it is for; ≤ 64 letters, digits, `_` and `-`
    ttl: Duration = 0.0  # so long after it is visible it expires and is not delivered any more, "10m"; 0: never

    def __post_init__(self) -> None:
        if not isinstance(self.body, BODY_TYPES):
            raise wrong_body(self.body)

    @classmethod
    def json(cls, value: object, **fields: Any) -> "Message":
        """A message whose body is `value` as compact JSON; `fields` as of the class.

        Also dataclasses, pydantic models, enums, sets, datetime, UUID and Decimal, as handlers of a worker read them.
        Raises TypeError for other values, ValueError for NaN and infinities, which are not in JSON.
        """
        from popmq._given.encoding import as_json  # which loads more than who sends texts needs

        return cls(as_json(value), **fields)

    #: The earlier name of `json`.
    from_json = json


class Send:
    """Messages for one topic that are sent together with an ack, in one commit.

        return popmq.Send("invoices", "text", popmq.Message.json({"id": 1}, key="1"))     # from a handler of a worker
        client.settle(batch, sends=[popmq.Send("invoices", *map(invoice, batch))])

    Raises TypeError for a topic that is no text, and for what is no message.
    """

    __slots__ = ("messages", "topic")

    def __init__(self, topic: str, *messages: Message | Body) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"the topic is {topic!r:.80}, of type {type(topic).__name__}: give its name as a str")
        for message in messages:
            if not isinstance(message, (Message, *BODY_TYPES)):
                raise wrong_body(message, "the message")
        if not messages:
            raise TypeError(f"nothing is sent to {topic!r}: give popmq.Send(topic, message)")
        self.topic = topic
        self.messages = messages

    def __repr__(self) -> str:
        return f"Send({self.topic!r}, {', '.join(map(repr, self.messages))})"


@dataclass(frozen=True, slots=True)
class SendReceipt:
    """Where a message was stored. It was on disk before the broker answered."""

    message_id: str
    queue: int  # -1: none yet, because it is delayed or a half message
    offset: int  # in its queue; -1: none yet
    recall_handle: str = ""  # of a delayed message: what `client.messages.recall` takes
    transaction_id: str = ""  # of a half message: what `client.transactions.end` takes
    duplicate: bool = False  # topics with unique ids: its id was stored before, at this place


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where a message of a dead-letter topic came from, and why it is there."""

    topic: str
    queue: int
    offset: int
    attempts: int  # deliveries it had
    first_pop_ms: int
    last_client: str  # client_id of the last delivery
    reason: str  # what the consumer said, or "lease expired"
    dead_ms: int


class DeliveryGuard(Protocol):
    """What settles a delivery: by how its handler ended, or as the handler says."""

    def enter(self, delivery: "Delivery") -> None:
        """A handler begins."""

    def leave(self, delivery: "Delivery", error: BaseException | None) -> bool:
        """A handler ended, with `error` or without. True: the error is swallowed."""

    async def leave_async(self, delivery: "Delivery", error: BaseException | None) -> bool:
        """The same for `async with`."""

    def settle(self, delivery: "Delivery", outcome: Outcome, sends: Sequence["Send"] = ()) -> None:
        """The handler settles it itself; an ack sends `sends` in the same commit."""

    def reply(self, delivery: "Delivery", message: "Message | Body") -> Any:
        """The handler replies: as `reply` of its client."""

    def forward(self, delivery: "Delivery", send: "Send") -> None:
        """Keeps messages that are sent with the ack of the delivery."""

    def give(self, delivery: "Delivery", result: Result) -> None:
        """Keeps the result that is stored with the ack of the delivery."""


class Referable:
    """Base of classes with slots that may be held by weak references."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, eq=False)
class Delivery(Referable):
    """One message, leased to this client until `invisible_until`.

    As a context manager it guards its handler: leaving acks the message; an exception releases it with backoff and
    reports the error's text to the broker; meanwhile its lease is renewed. A delivery of an AsyncClient takes
    `async with`, or `with` where nothing needs to be awaited. Deliveries of `browse`, `peek` and `look_up` have no
    handle and cannot be settled; a pickled one keeps its handle, which `client.ack` settles.
    """

    body: bytes
    topic: str = ""
    group: str = ""
    key: str = ""
    tag: str = ""
    message_id: str = ""
    handle: str = field(
        default="", repr=False
    )  # names this delivery; invalid once it is settled or its lease has ended
    attempt: int = 1  # 1 at the first delivery
    queue: int = 0
    offset: int = 0
    born_ms: int = 0
    stored_ms: int = 0
    invisible_until_ms: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    more_keys: Sequence[str] = ()
    message_group: str = ""
    priority: int = 0
    deliver_at_ms: int = 0  # as it was sent
    encoding: str = ""
    trace_context: TraceContext | None = None
    dead_letter: DeadLetter | None = None  # in a dead-letter topic: its origin
    lite_topic: str = ""
    ttl: float = 0.0  # seconds after which it expires, from `stored`; 0: never
    _guard: "DeliveryGuard | None" = field(default=None, repr=False)
    _renamed: str = field(default="", repr=False)

    @property
    def current_handle(self) -> str:
        """The handle that names it now: of some brokers a renewal has another one."""
        return self._renamed or self.handle

    def rename(self, handle: str) -> None:
        """A renewal was answered with this handle. `handle` stays: this client knows the delivery by it."""
        object.__setattr__(self, "_renamed", handle)

    @property
    def order_key(self) -> str:
        """The message group or lite topic in which it is ordered; "": not ordered."""
        return self.message_group or self.lite_topic

    @property
    def invisible_until(self) -> datetime:
        """The deadline of the lease at the pop; renewals extend it."""
        return _moment(self.invisible_until_ms)

    @property
    def stored(self) -> datetime:
        """When the broker stored it."""
        return _moment(self.stored_ms)

    def unpacked(self) -> bytes:
        """The body before it was compressed, if its `encoding` is GZIP or ZLIB; else as it is.

        Raises ValueError for one that is damaged, or larger than 32 MiB when it is unpacked.
        """
        if not self.encoding:
            return self.body
        from popmq._given.unpacking import unpacked  # which few messages need

        return unpacked(self.body, self.encoding)

    def text(self) -> str:
        """The unpacked body as UTF-8. Raises ValueError."""
        return self.unpacked().decode()

    def json(self) -> Any:
        """The unpacked body as JSON. Raises ValueError."""
        try:
            return json.loads(self.unpacked())
        except RecursionError:
            raise ValueError("the body is nested too deeply") from None

    def ack(self, result: Result | None = None) -> None:
        """Acks it, in the background; `client.ack` waits for the broker.

        `result`: kept with the ack, in one commit, for `client.result`; its group has to keep results. Raises TypeError
        and InvalidField for what is no result; RuntimeError for a pulled message.
        """
        if result is not None:
            self._guarded().give(self, result)
        self._settle(ACK)

    def release(self, delay: Duration | None = None, *, uncounted: bool = False, reason: str = "") -> None:
        """Releases it, in the background: visible after `delay`, such as 90 or "90s" (None: the group's backoff).

        `uncounted`: this attempt does not count. `reason` (≤ 4 KiB) stays with the message.
        """
        self._settle(Released(seconds_or_none(delay, "delay"), uncounted, reason))

    def snooze(self, delay: Duration, *, reason: str = "") -> None:
        """Puts it back for `delay`, such as "5m", in the background, because it cannot be handled yet.

        No attempt counts, up to the group's `snoozes_max` snoozes of one message; a further one is a release that
        counts. `reason` (≤ 4 KiB) stays with the message. `client.snooze` waits for the broker.
        """
        self._settle(Released(seconds_of(delay, "delay"), False, reason, snooze=True))

    def reject(self, reason: str = "") -> None:
        """Sends it to the dead-letter topic, in the background. `reason`: ≤ 4 KiB."""
        self._settle(Rejected(reason))

    def forward(self, *messages: Message | Body, topic: str) -> None:
        """Sends messages to `topic` together with the ack of this delivery, in one commit: both happen, or neither.

        Inside its `with` block: they are sent when the block ends without an exception, or by `ack`. If the broker
        refuses one of them, none is sent and this delivery is released, with the error as its reason. Raises
        InvalidField for a half message, HandleLapsed if this delivery is settled or its lease has ended, RuntimeError
        without a client that settles it, or for a pulled message; TypeError as `send` does.
        """
        self._guarded().forward(self, Send(topic, *messages))

    def settle(self, sends: "Send | Iterable[Send]" = (), result: Result | None = None) -> None:
        """Acks it and sends messages, in one commit, in the background; `client.settle` waits for the broker.

        `result`: as in `ack`. Raises as `forward` and `ack` do, but does not need the `with` block.
        """
        if result is not None:
            self._guarded().give(self, result)
        self._guarded().settle(self, ACK, [sends] if isinstance(sends, Send) else list(sends))

    def reply(self, message: Message | Body) -> Any:
        """Replies to a message that was sent by `client.request`; does not settle it.

        Returns the SendReceipt when the reply is on the broker's disk; with an AsyncClient, `await` it. Raises
        InvalidField if the message is not a request, RuntimeError without a client, and what `send` raises.
        """
        if self._guard is None:
            raise RuntimeError("this delivery has no client that replies: use client.reply(delivery, …)")
        return self._guard.reply(self, message)

    def _settle(self, outcome: Outcome) -> None:
        self._guarded().settle(self, outcome)

    def _guarded(self) -> "DeliveryGuard":
        if self._guard is None:
            raise RuntimeError(
                "this delivery has no client that settles it: it was browsed, or was pickled (then use client.ack)"
            )
        return self._guard

    def __copy__(self) -> Self:
        return self  # it never changes, as a tuple

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without its guard, which belongs to the client of this process: `client.ack(delivery)` settles it."""
        values = [None if each.name == "_guard" else getattr(self, each.name) for each in fields(self)]
        return type(self), tuple(values)

    def __enter__(self) -> Self:
        if self._guard:
            self._guard.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._guard.leave(self, error) if self._guard else False

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._guard.leave_async(self, error) if self._guard else False


@dataclass(frozen=True, slots=True)
class Columns:
    """Messages as lists of one length, one per field: for readers that want arrays, not objects.

    Those that were not asked for are empty; `offset` always comes, those from `dead_letter` on only when they are
    named.
    """

    message_id: Sequence[str]
    body: Sequence[bytes]
    tag: Sequence[str]
    key: Sequence[str]  # the first key, or ""
    queue: Sequence[int]
    offset: Sequence[int]
    born_ms: Sequence[int]
    stored_ms: Sequence[int]
    attempt: Sequence[int]
    properties: Sequence[Mapping[str, str]]
    dead_letter: Sequence[DeadLetter | None] = ()
    keys: Sequence[Sequence[str]] = ()  # all keys of each message
    message_group: Sequence[str] = ()
    priority: Sequence[int] = ()
    encoding: Sequence[str] = ()  # as in Message: "" or a name like "GZIP"

    def __len__(self) -> int:
        return len(self.offset)

    def unpacked(self, row: int) -> bytes:
        """The body of a row before it was compressed, if its `encoding` was asked for and is GZIP or ZLIB.

        Raises ValueError for one that is damaged, or larger than 32 MiB when it is unpacked.
        """
        from popmq._given.unpacking import unpacked  # which few messages need

        return unpacked(self.body[row], self.encoding[row] if self.encoding else "")

    @classmethod
    def of(cls, deliveries: Iterable[Delivery]) -> Self:
        """The columns of messages from `pop`, `peek`, `browse` and others, with all fields."""
        rows = list(deliveries)
        given = {field: [getattr(row, field) for row in rows] for field in cls.__dataclass_fields__ if field != "keys"}
        return cls(**given, keys=[[key for key in (row.key, *row.more_keys) if key] for row in rows])

    def to_arrow(self) -> Any:
        """A pyarrow.Table, with the names and types of the Spark connector. Raises MissingLibrary without pyarrow."""
        from popmq._given import tables  # here: few programs need it

        return tables.to_arrow(self._fields(), len(self))

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame. Raises MissingLibrary without pyarrow or pandas."""
        from popmq._given import tables

        return tables.to_pandas(self._fields(), len(self))

    def _fields(self) -> dict[str, Sequence[Any]]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
