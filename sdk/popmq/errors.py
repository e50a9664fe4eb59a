"""Every error of the SDK, by what the caller can do about it.

PopMQError
├── Rejected              the request is at fault: change it
│   ├── InvalidField          a field is missing, too long or out of range (`.field` names it)
│   ├── InvalidHandle         not a handle, damaged, or of another group
│   ├── InvalidFilter         the filter cannot be read
│   ├── RequestNumberReused   a producer id that two producers use
│   ├── NotFound
│   │   ├── TopicNotFound
│   │   ├── GroupNotFound
│   │   ├── OwnerNotFound     attach it first
│   │   ├── ClientNotFound    not connected, or none that can be asked
│   │   ├── MessageNotFound   delivered, recalled, dropped, or never there
│   │   ├── TransactionNotFound  given up, ended over an hour ago, or never there
│   │   ├── ScheduleNotFound
│   │   └── StageNotFound     dropped, never there, or a piece of it is missing
│   ├── AlreadyExists         with other settings
│   ├── FilterConflict        the group has another filter for this topic
│   ├── LiteSubscriptionQuota more lite topics than one client may name
│   ├── WrongConsumeMode      the group pulls this topic, or pops it
│   ├── Forbidden             an operator has closed the topic or the group
│   ├── Unsupported           part of the contract that this broker does not serve
│   └── Denied
│       ├── Unauthenticated   say who you are
│       └── PermissionDenied  you may not do this
├── Over                  what you held is over, which is normal: go on without it
│   ├── HandleLapsed          this delivery was settled, or its lease ran out
│   ├── Fenced                a newer generation of this owner works: stop
│   ├── EpochAlreadyAcked     the epoch is finished
│   └── TransactionEnded      it was ended the other way
├── TryLater              the same request may succeed later; the SDK tried until its deadline
│   ├── Busy                  too many requests wait
│   │   ├── InFlightLimit     the group has too many messages leased: ack first
│   │   └── PollingFull       too many parked pops
│   ├── RateLimited           the topic's quota is used up (`.retry_after`)
│   ├── LiteTopicQuota        the topic has all the lite topics that it may have
│   ├── StorageFull           no room for new messages; acks still work
│   ├── Unavailable           no broker answers there, or it is starting or stopping
│   └── DeadlineExceeded      no answer in time: whether it was done is not known
├── PartlyRefused         some entries of a batch were refused, the others are done (`.results`)
├── RequestFailed         the handler of a request rejected it
├── Incomplete            a backup ended before its end: throw away what was written
├── ClientClosed          this client was closed, or was made before a fork
└── InternalError         a bug of the broker: please report it
"""

from collections.abc import Sequence
from typing import Any


class PopMQError(Exception):
    """Everything this package raises on purpose.

    `code` is the name of a popmq.v1.Code, or "" for what no broker said. `field` is the path of the field at fault,
    `action` says what to do, `retryable` whether the same request may succeed later, `retry_after` in how many seconds
    at the earliest (0 = no hint).
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


class Rejected(PopMQError):
    """The request is at fault: change it."""


class InvalidField(Rejected):
    """A field is missing, too long or out of range; `field` is its path, such as "messages[3].body"."""


class InvalidHandle(Rejected):
    """Not a handle, damaged, or of another group."""


class InvalidFilter(Rejected):
    """The filter cannot be read; the message says at which place, and what could stand there."""


class RequestNumberReused(Rejected):
    """A request number came again with another topic or count: two producers use one producer id."""


class NotFound(Rejected):
    """What the request names is not there."""


class TopicNotFound(NotFound):
    """There is no such topic: `client.create_topic`, or `popmq topic create`."""


class GroupNotFound(NotFound):
    """There is no such group: `client.create_group`, or `popmq group create`."""


class OwnerNotFound(NotFound):
    """There is no such owner in the group: `client.attach_owner`."""


class ClientNotFound(NotFound):
    """No such client is connected, or it is none that can be asked: only official RocketMQ 5 clients can."""


class MessageNotFound(NotFound):
    """There is no such message: it was delivered, recalled or dropped, or was never there."""


class TransactionNotFound(NotFound):
    """There is no such half message: it was given up, ended over an hour ago, or was never there."""


class ScheduleNotFound(NotFound):
    """No schedule of this name."""


class StageNotFound(NotFound):
    """A stage is not whole: it was dropped, was never there, or a piece is missing. Stage the batch again."""


class AlreadyExists(Rejected):
    """It exists with other settings. (With the same settings, creating it again succeeds.)"""


class FilterConflict(Rejected):
    """The group reads this topic with another filter: name none, or replace it by `client.set_filter`."""


class LiteSubscriptionQuota(Rejected):
    """More lite topics than one client may subscribe to."""


class WrongConsumeMode(Rejected):
    """The group pulls this topic and cannot pop it, or the other way: see `client.set_consume_mode`."""


class Forbidden(Rejected):
    """The topic's `permission` or the group's `consume_enable` does not allow it, to nobody. Settling always works."""


class Unsupported(Rejected):
    """Part of the contract that this broker does not serve."""


class Denied(Rejected):
    """The broker does not let you."""


class Unauthenticated(Denied):
    """The broker wants to know who you are."""


class PermissionDenied(Denied):
    """The broker knows who you are; you may not do this."""


class Over(PopMQError):
    """What you held is over. A normal outcome of leases: drop it and go on."""


class HandleLapsed(Over):
    """This delivery is over: acked, released, rejected, or its lease ran out (then the message comes back)."""


class Fenced(Over):
    """A newer generation of this owner is at work: stop."""


class EpochAlreadyAcked(Over):
    """The epoch is finished; its messages are not repeated."""


class TransactionEnded(Over):
    """The transaction was ended the other way: committed, not rolled back, or rolled back, not committed."""


class TryLater(PopMQError):
    """The same request may succeed later. The SDK has tried until its deadline already."""


class Busy(TryLater):
    """Too many requests wait in the broker."""


class InFlightLimit(Busy):
    """The group has too many messages leased: ack first."""


class PollingFull(Busy):
    """Too many pops are parked in the broker."""


class RateLimited(TryLater):
    """The topic's quota is used up; `retry_after` says when there is some again."""


class LiteTopicQuota(TryLater):
    """The topic has all the lite topics that it may have; idle ones are removed in time."""


class StorageFull(TryLater):
    """No room for new messages; acks still work."""


class Unavailable(TryLater):
    """No broker answers at the endpoint, or it is starting or stopping."""


class DeadlineExceeded(TryLater):
    """No answer in time. Whether the request was done is not known; a send may have been stored."""


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
    """A backup ended before its end, or its bytes are not those that were sent: what was written is no backup."""


class RequestFailed(PopMQError):
    """The handler of a request rejected it; the message has its reason."""


class ClientClosed(PopMQError):
    """This client was closed, or belongs to the process before a fork: make a new one."""


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
