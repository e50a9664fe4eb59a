"""Every error of the SDK, by what the caller can do about it.

PopMQError
├── BadRequest            the broker cannot do this request: change it
│   ├── InvalidField          a field is missing, too long or out of range (`.field` names it)
│   ├── InvalidHandle         not a handle, damaged, or of another group
│   ├── InvalidFilter         the filter cannot be parsed
│   ├── RequestNumberReused   two producers use one producer id: give each its own
│   ├── NotFound
│   │   ├── TopicNotFound
│   │   ├── GroupNotFound
│   │   ├── OwnerNotFound     attach it first
│   │   ├── ClientNotFound    it is not connected, or is not an official RocketMQ 5 client
│   │   ├── MessageNotFound   delivered, recalled or dropped, or never existed
│   │   ├── TransactionNotFound  given up, ended over an hour ago, or never existed
│   │   ├── ScheduleNotFound  list the schedules
│   │   └── StageNotFound     dropped, incomplete, or never existed: stage the batch again
│   ├── AlreadyExists         it exists with other settings
│   ├── FilterConflict        the group has another filter for this topic
│   ├── LiteSubscriptionQuota the client subscribes to too many lite topics
│   ├── WrongConsumeMode      the group pulls this topic and cannot pop it, or the reverse
│   ├── Forbidden             an operator has closed the topic or the group
│   ├── Unsupported           the engine lacks this: do what `action` says instead
│   └── Denied
│       ├── Unauthenticated   connect with an access key or a client certificate
│       └── PermissionDenied  the access key lacks this right
├── Over                  this lease, epoch or transaction has ended, which is normal: go on without it
│   ├── HandleLapsed          this delivery was settled, or its lease expired
│   │   └── LeaseLost             it is not known which: an answer was lost, and the message may come back
│   ├── Fenced                a newer generation of this owner has taken over: stop
│   ├── EpochAlreadyAcked     the epoch is finished
│   └── TransactionEnded      it was committed, not rolled back, or the reverse
├── TryLater              the same request may succeed later; the SDK tried until its deadline
│   ├── Busy                  too many requests are waiting
│   │   ├── InFlightLimit     the group has too many messages leased: ack first
│   │   └── PollingFull       too many parked calls
│   ├── RateLimited           the topic's quota is used up (`.retry_after`)
│   ├── LiteTopicQuota        the topic has its maximum number of lite topics
│   ├── ResultTimeout         the message has no result yet
│   ├── StorageFull           no room for new messages; acks still work
│   ├── Unavailable           the broker does not answer, or is starting or stopping
│   └── DeadlineExceeded      no answer in time: the request may have been done
├── PartlyRefused         some entries of a batch were refused, the others are done (`.results`)
├── RequestFailed         a request was rejected, or became a dead letter
├── ResultFailed          the message whose result was asked for became a dead letter
├── Incomplete            a backup was cut short or damaged: delete the file
├── ClientClosed          this client was closed, or created before a fork
├── OutsideTransaction    an outbox sends in a transaction of the database: begin one
├── MissingLibrary        a library that only this method needs is not installed
└── InternalError         a bug of the broker: please report it
"""

from collections.abc import Sequence
from typing import Any


class PopMQError(Exception):
    """Everything this package raises on purpose.

    `code` is the name of a popmq.v1.Code, or "" if the error did not come from a broker. `field` is the path of the
    field at fault. `action` says what to do. `retryable`: whether the same request may succeed later;
    `retry_after`: in how many seconds at the earliest (0 = no hint).
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        field: str = "",
        action: str = "",
        retryable: bool = False,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field
        self.action = action
        self.retryable = retryable
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes (pools, Spark), and are copied for each caller of a request of several.
        return type(self).__new__, (type(self), *self.args), self.__dict__

    def __str__(self) -> str:
        return f"{self.message} ({self.action})" if self.action else self.message


class BadRequest(PopMQError):
    """The broker cannot do this request: change it. (`reject` of a delivery is something else, and no error.)"""


class InvalidField(BadRequest):
    """A field is missing, too long or out of range; `field` is its path, such as "messages[3].body"."""


class InvalidHandle(BadRequest):
    """Not a handle, damaged, or of another group."""


class InvalidFilter(BadRequest):
    """The filter cannot be parsed; the message gives the position and the tokens expected there."""


class RequestNumberReused(BadRequest):
    """A request number was repeated with another topic or number of messages: two producers use one producer id."""


class NotFound(BadRequest):
    """The request names something that does not exist."""


class TopicNotFound(NotFound):
    """There is no such topic: `client.topics.create`, or `popmq topic create`."""


class GroupNotFound(NotFound):
    """There is no such group: `client.groups.create`, or `popmq group create`."""


class OwnerNotFound(NotFound):
    """There is no such owner in the group: `client.owners.attach`."""


class ClientNotFound(NotFound):
    """No such client is connected, or it cannot answer: only official RocketMQ 5 clients do."""


class MessageNotFound(NotFound):
    """There is no such message: it was delivered, recalled or dropped, or never existed."""


class TransactionNotFound(NotFound):
    """There is no such half message: it was given up, ended over an hour ago, or never existed."""


class ScheduleNotFound(NotFound):
    """There is no such schedule: `client.schedules.list`, or `popmq schedule list`, gives the names."""


class StageNotFound(NotFound):
    """A stage is incomplete, was dropped, or never existed. Stage the batch again."""


class AlreadyExists(BadRequest):
    """It exists with other settings. (With the same settings, creating it again succeeds.)"""


class FilterConflict(BadRequest):
    """The group reads this topic with another filter: pass no filter, or replace it with `client.groups.set_filter`."""


class LiteSubscriptionQuota(BadRequest):
    """The client subscribes to more lite topics than one client may: subscribe to fewer, or use more clients."""


class WrongConsumeMode(BadRequest):
    """The group pulls this topic and cannot pop it, or the reverse: see `client.groups.set_consume_mode`."""


class Forbidden(BadRequest):
    """Closed for every caller by the topic's `permission` or the group's `consume_enable`. Ack, release and reject
    still work.
    """


class Unsupported(BadRequest):
    """The broker's engine lacks a capability: do what `action` says instead. `client.info` lists what is missing."""


class Denied(BadRequest):
    """Access is refused: the caller has no valid access key, or the key lacks the right for this call."""


class Unauthenticated(Denied):
    """The call has no valid access key or client certificate: pass `access_key` and `secret` to the client."""


class PermissionDenied(Denied):
    """The access key lacks the right for this call: an operator adds it to the key file."""


class Over(PopMQError):
    """The lease, epoch or transaction has ended. A normal outcome: drop what you held and go on."""


class HandleLapsed(Over):
    """This delivery is over: it was acked, released or rejected, or its lease expired (then the message comes back)."""


class LeaseLost(HandleLapsed):
    """An ack, release or reject was repeated because its answer was lost, and met a delivery that is over.

    Either the earlier try settled it, or it never arrived and the lease expired: then the message comes back.
    """


class Fenced(Over):
    """A newer generation of this owner has taken over: stop."""


class EpochAlreadyAcked(Over):
    """The epoch is finished; its messages are not repeated."""


class TransactionEnded(Over):
    """The transaction was ended the other way: it was committed, not rolled back, or the reverse."""


class TryLater(PopMQError):
    """The same request may succeed later. The SDK has tried until its deadline already."""


class Busy(TryLater):
    """Too many requests are waiting in the broker."""


class InFlightLimit(Busy):
    """The group has too many messages leased: ack first."""


class PollingFull(Busy):
    """Too many calls are parked in the broker."""


class RateLimited(TryLater):
    """The topic's quota is used up; `retry_after` gives the seconds until it allows the next message."""


class LiteTopicQuota(TryLater):
    """The topic has its maximum number of lite topics; idle ones are removed in time."""


class StorageFull(TryLater):
    """No room for new messages; acks still work."""


class Unavailable(TryLater):
    """The broker does not answer at the endpoint, or it is starting or stopping."""


class DeadlineExceeded(TryLater):
    """No answer in time. The request may have been done: a send, for example, may have been stored."""


class PartlyRefused(PopMQError):
    """Some entries of a batch were refused; the others are done.

    `results` has one item for each entry, in order: what the call returns for it, or the error that refused it.
    """

    def __init__(self, results: Sequence[Any]) -> None:
        self.results = list(results)
        refused = [(index, result) for index, result in enumerate(self.results) if isinstance(result, PopMQError)]
        self.errors = dict(refused)
        index, first = refused[0]
        super().__init__(
            f"{len(refused)} of {len(self.results)} entries were refused; the first, entry {index}: {first.message}",
            code=first.code,
            field=first.field,
            action=first.action,
            retryable=all(error.retryable for _, error in refused),
        )


class Incomplete(PopMQError):
    """A backup was cut short, or its bytes differ from those that were sent: delete the file that was written."""


class ResultTimeout(TryLater):
    """The message has no result yet: it is still handled, was never sent, or its result was forgotten or is too old."""


class ResultFailed(PopMQError):
    """The message whose result was asked for became a dead letter; the text has its reason."""


class RequestFailed(PopMQError):
    """The handler of a request rejected it, or it became a dead letter; the message has its reason."""


class ClientClosed(PopMQError):
    """This client was closed, or was created before a fork: create a new one."""


class OutsideTransaction(PopMQError):
    """An outbox was told to send, and the connection of the database is in autocommit: begin a transaction first."""


class MissingLibrary(PopMQError, ImportError):
    """A library that only this method needs is not installed; `action` says how to install it."""


class InternalError(PopMQError):
    """A bug of the broker: please report it."""


#: popmq.v1.Code by name → the class raised for it. A test proves that no code is missing.
BY_CODE: dict[str, type[PopMQError]] = {
    "CODE_UNSPECIFIED": InternalError,
    "INVALID_FIELD": InvalidField,
    "TOPIC_NOT_FOUND": TopicNotFound,
    "GROUP_NOT_FOUND": GroupNotFound,
    "OWNER_NOT_FOUND": OwnerNotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "INVALID_HANDLE": InvalidHandle,
    "HANDLE_LAPSED": HandleLapsed,
    "FENCED": Fenced,
    "EPOCH_ALREADY_ACKED": EpochAlreadyAcked,
    "FILTER_CONFLICT": FilterConflict,
    "FILTER_INVALID": InvalidFilter,
    "REQUEST_NUMBER_REUSED": RequestNumberReused,
    "STORAGE_FULL": StorageFull,
    "BUSY": Busy,
    "IN_FLIGHT_LIMIT": InFlightLimit,
    "POLLING_FULL": PollingFull,
    "UNAVAILABLE": Unavailable,
    "UNSUPPORTED": Unsupported,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "INTERNAL": InternalError,
    "MESSAGE_NOT_FOUND": MessageNotFound,
    "TRANSACTION_NOT_FOUND": TransactionNotFound,
    "TRANSACTION_ENDED": TransactionEnded,
    "RATE_LIMITED": RateLimited,
    "WRONG_CONSUME_MODE": WrongConsumeMode,
    "CLIENT_NOT_FOUND": ClientNotFound,
    "LITE_TOPIC_QUOTA": LiteTopicQuota,
    "LITE_SUBSCRIPTION_QUOTA": LiteSubscriptionQuota,
    "FORBIDDEN": Forbidden,
    "STAGE_NOT_FOUND": StageNotFound,
    "SCHEDULE_NOT_FOUND": ScheduleNotFound,
}
