"""PopMQ: the thin client of a message broker that leases.

    import popmq

    with popmq.Client("127.0.0.1:8081") as client:
        client.create_topic("orders"), client.create_group("billing")
        client.send("orders", ["one", "two"])
        for delivery in client.consume("orders", "billing"):
            with delivery:  # acked on success, released with backoff on an exception, its lease renewed meanwhile
                print(delivery.text())

`popmq.AsyncClient` has the same words for asyncio, `popmq.errors` the exceptions, `popmq.testing` a broker for tests.
"""

from popmq import _fork, errors  # noqa: F401 - _fork is imported for what it does, and before whatever imports gRPC
from popmq._async.client import AsyncClient
from popmq._async.consumer import AsyncConsumer
from popmq._async.pull_consumer import AsyncPullConsumer
from popmq._async.transactions import AsyncTransaction
from popmq._calls import InvisibleTimeResult
from popmq._sync.client import Client
from popmq._sync.consumer import Consumer
from popmq._sync.pull_consumer import PullConsumer
from popmq._sync.transactions import Transaction
from popmq.config import Retry, Timeouts
from popmq.errors import PopMQError
from popmq.life import GroupLife, LifeEvent, MessageLife
from popmq.message import DELAY_LEVELS, DeadLetter, Delivery, Message, SendReceipt, TraceContext
from popmq.owner import Attachment, Availability, Columns, OwnerLease, Position, SealedBatch, Token
from popmq.process_queue import FlowControl
from popmq.pull import Pulled, PullState, QueueLocks
from popmq.sink import BatchCommit, StageName
from popmq.stats import (
    ClientAnswer,
    ClientSession,
    ClientStats,
    DelayedMessage,
    DelayedMessages,
    Found,
    GroupStats,
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
from popmq.transaction import HalfMessage, HalfMessages, TransactionCheck

__version__ = "0.1.0"

__all__ = [
    "DELAY_LEVELS",
    "Assignment",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncPullConsumer",
    "AsyncTransaction",
    "Attachment",
    "Availability",
    "BatchCommit",
    "Client",
    "ClientAnswer",
    "ClientSession",
    "ClientStats",
    "Columns",
    "Consumer",
    "DeadLetter",
    "DelayedMessage",
    "DelayedMessages",
    "Delivery",
    "FlowControl",
    "Found",
    "Group",
    "GroupLife",
    "GroupStats",
    "HalfMessage",
    "HalfMessages",
    "InvisibleTimeResult",
    "Lease",
    "Leases",
    "LifeEvent",
    "LiteTopics",
    "Message",
    "MessageGroupState",
    "MessageGroups",
    "MessageLife",
    "Owner",
    "OwnerLease",
    "Page",
    "PopMQError",
    "Position",
    "PullConsumer",
    "PullState",
    "Pulled",
    "QueueLocks",
    "QueueOffsets",
    "QueueStats",
    "Quota",
    "RedriveFailure",
    "Redriven",
    "Retention",
    "Retry",
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
    "errors",
]
