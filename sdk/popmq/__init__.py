"""PopMQ: the thin client of a message broker that leases.

    import popmq

    with popmq.Client("127.0.0.1:8081") as client:
        client.topics.create("orders")
        client.groups.create("billing")
        client.send("orders", ["one", "two"])
        for delivery in client.consume("orders", "billing"):
            with delivery:  # acked on success, released with backoff on an exception, its lease renewed meanwhile
                print(delivery.text())

`popmq.AsyncClient` has the same methods for asyncio, `popmq.errors` the exceptions, `popmq.testing` a broker for tests.
"""

import importlib
from typing import TYPE_CHECKING, Any

from popmq import errors

if TYPE_CHECKING:
    from popmq import config as config
    from popmq import duration as duration
    from popmq import life as life
    from popmq import message as message
    from popmq import owner as owner
    from popmq import process_queue as process_queue
    from popmq import pull as pull
    from popmq import schedule as schedule
    from popmq import sink as sink
    from popmq import stats as stats
    from popmq import topic as topic
    from popmq import transaction as transaction
    from popmq import worker as worker
    from popmq._async.client import AsyncClient
    from popmq._async.consuming.consumer import AsyncConsumer
    from popmq._async.consuming.pull_consumer import AsyncPullConsumer
    from popmq._async.transaction import AsyncTransaction
    from popmq._calls.pop_calls import InvisibleTimeResult
    from popmq._sync.client import Client
    from popmq._sync.consuming.consumer import Consumer
    from popmq._sync.consuming.pull_consumer import PullConsumer
    from popmq._sync.transaction import Transaction
    from popmq.config import Retry, Timeouts
    from popmq.errors import PopMQError
    from popmq.life import GroupLife, LifeEvent, MessageLife
    from popmq.message import DELAY_LEVELS, Columns, DeadLetter, Delivery, Message, SendReceipt, TraceContext
    from popmq.owner import Attachment, Availability, Finished, OwnerLease, Position, SealedBatch, Token
    from popmq.process_queue import FlowControl
    from popmq.pull import Pulled, PulledColumns, PullState, QueueLocks
    from popmq.schedule import Schedule
    from popmq.sink import BatchCommit, StageName
    from popmq.stats import (
        AccessKey,
        AccessKeys,
        BrokerInfo,
        ClientAnswer,
        ClientSession,
        ClientStats,
        DeadLetterReason,
        DelayedMessage,
        DelayedMessages,
        Discarded,
        Found,
        GroupStats,
        History,
        HistoryPoint,
        Lease,
        Leases,
        MessageGroups,
        MessageGroupState,
        Owner,
        Page,
        QueueOffsets,
        QueueStats,
        RedriveFailure,
        Redriven,
        Stats,
        StoreStats,
        TopicStats,
    )
    from popmq.topic import Assignment, Group, LiteTopics, Quota, Retention, Session, Subscription, Topic
    from popmq.transaction import HalfMessage, HalfMessages, MessagePreview, TransactionCheck
    from popmq.worker import Middleware, Reject, RetryLater, Worker
else:

    def __getattr__(name: str) -> Any:
        """Imports the module of a public name when it is first used: a program needs one of the two clients, and the
        command line starts in half the time.
        """
        module = _MODULES.get(name)
        if module is None and name not in _SUBMODULES:
            raise AttributeError(f"module 'popmq' has no attribute {name!r}")
        found = importlib.import_module(module or f"popmq.{name}")
        value = globals()[name] = getattr(found, name) if module else found
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES, *_SUBMODULES})


#: The modules of the public names, by module.
_NAMES = {
    "popmq._async.client": "AsyncClient",
    "popmq._async.consuming.consumer": "AsyncConsumer",
    "popmq._async.consuming.pull_consumer": "AsyncPullConsumer",
    "popmq._async.transaction": "AsyncTransaction",
    "popmq._calls.pop_calls": "InvisibleTimeResult",
    "popmq._sync.client": "Client",
    "popmq._sync.consuming.consumer": "Consumer",
    "popmq._sync.consuming.pull_consumer": "PullConsumer",
    "popmq._sync.transaction": "Transaction",
    "popmq.config": "Retry Timeouts",
    "popmq.errors": "PopMQError",
    "popmq.life": "GroupLife LifeEvent MessageLife",
    "popmq.message": "DELAY_LEVELS Columns DeadLetter Delivery Message SendReceipt TraceContext",
    "popmq.owner": "Attachment Availability Finished OwnerLease Position SealedBatch Token",
    "popmq.process_queue": "FlowControl",
    "popmq.pull": "Pulled PulledColumns PullState QueueLocks",
    "popmq.schedule": "Schedule",
    "popmq.sink": "BatchCommit StageName",
    "popmq.stats": "AccessKey AccessKeys BrokerInfo "
    "ClientAnswer ClientSession ClientStats DeadLetterReason DelayedMessage DelayedMessages Discarded Found GroupStats "
    "History HistoryPoint Lease Leases MessageGroups MessageGroupState Owner Page QueueOffsets "
    "QueueStats RedriveFailure Redriven Stats StoreStats TopicStats",
    "popmq.topic": "Assignment Group LiteTopics Quota Retention Session Subscription Topic",
    "popmq.transaction": "HalfMessage HalfMessages MessagePreview TransactionCheck",
    "popmq.worker": "Middleware Reject RetryLater Worker",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
#: Public modules that need no import of their own.
_SUBMODULES = (
    "config",
    "duration",
    "life",
    "message",
    "owner",
    "process_queue",
    "pull",
    "schedule",
    "sink",
    "stats",
    "topic",
    "transaction",
    "worker",
)

__version__ = "0.1.0"

__all__ = [
    "DELAY_LEVELS",
    "AccessKey",
    "AccessKeys",
    "Assignment",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncPullConsumer",
    "AsyncTransaction",
    "Attachment",
    "Availability",
    "BatchCommit",
    "BrokerInfo",
    "Client",
    "ClientAnswer",
    "ClientSession",
    "ClientStats",
    "Columns",
    "Consumer",
    "DeadLetter",
    "DeadLetterReason",
    "DelayedMessage",
    "DelayedMessages",
    "Delivery",
    "Discarded",
    "Finished",
    "FlowControl",
    "Found",
    "Group",
    "GroupLife",
    "GroupStats",
    "HalfMessage",
    "HalfMessages",
    "History",
    "HistoryPoint",
    "InvisibleTimeResult",
    "Lease",
    "Leases",
    "LifeEvent",
    "LiteTopics",
    "Message",
    "MessageGroupState",
    "MessageGroups",
    "MessageLife",
    "MessagePreview",
    "Middleware",
    "Owner",
    "OwnerLease",
    "Page",
    "PopMQError",
    "Position",
    "PullConsumer",
    "PullState",
    "Pulled",
    "PulledColumns",
    "QueueLocks",
    "QueueOffsets",
    "QueueStats",
    "Quota",
    "RedriveFailure",
    "Redriven",
    "Reject",
    "Retention",
    "Retry",
    "RetryLater",
    "Schedule",
    "SealedBatch",
    "SendReceipt",
    "Session",
    "StageName",
    "Stats",
    "StoreStats",
    "Subscription",
    "Timeouts",
    "Token",
    "Topic",
    "TopicStats",
    "TraceContext",
    "Transaction",
    "TransactionCheck",
    "Worker",
    "errors",
]
