# Written by sdk/twin.py from popmq/__init__.py: change that one.
from popmq import config as config
from popmq import duration as duration
from popmq import errors as errors
from popmq import message as message
from popmq import outbox as outbox
from popmq import outcome as outcome
from popmq import owner as owner
from popmq import process_queue as process_queue
from popmq import pull as pull
from popmq import schedule as schedule
from popmq import sink as sink
from popmq import stats as stats
from popmq import topic as topic
from popmq import transaction as transaction
from popmq import worker as worker
from popmq._async.client import AsyncClient as AsyncClient
from popmq._async.consuming.consumer import AsyncConsumer as AsyncConsumer
from popmq._async.consuming.pull_consumer import AsyncPullConsumer as AsyncPullConsumer
from popmq._async.transaction import AsyncTransaction as AsyncTransaction
from popmq._calls.encoded import EncodedMessages as EncodedMessages
from popmq._sync.client import Client as Client
from popmq._sync.consuming.consumer import Consumer as Consumer
from popmq._sync.consuming.pull_consumer import PullConsumer as PullConsumer
from popmq._sync.transaction import Transaction as Transaction
from popmq.config import ConsumeOptions as ConsumeOptions
from popmq.config import Retry as Retry
from popmq.config import Timeouts as Timeouts
from popmq.errors import PopMQError as PopMQError
from popmq.message import DELAY_LEVELS as DELAY_LEVELS
from popmq.message import Columns as Columns
from popmq.message import DeadLetter as DeadLetter
from popmq.message import Delivery as Delivery
from popmq.message import Message as Message
from popmq.message import Send as Send
from popmq.message import SendReceipt as SendReceipt
from popmq.message import TraceContext as TraceContext
from popmq.outbox import AsyncBox as AsyncBox
from popmq.outbox import AsyncOutbox as AsyncOutbox
from popmq.outbox import Box as Box
from popmq.outbox import Outbox as Outbox
from popmq.outcome import InvisibleTimeResult as InvisibleTimeResult
from popmq.outcome import Reject as Reject
from popmq.outcome import Result as Result
from popmq.outcome import RetryLater as RetryLater
from popmq.outcome import Snooze as Snooze
from popmq.owner import Attachment as Attachment
from popmq.owner import Availability as Availability
from popmq.owner import Finished as Finished
from popmq.owner import OwnerLease as OwnerLease
from popmq.owner import Position as Position
from popmq.owner import SealedBatch as SealedBatch
from popmq.owner import Token as Token
from popmq.process_queue import FlowControl as FlowControl
from popmq.pull import BroadcastConsumeOptions as BroadcastConsumeOptions
from popmq.pull import PullConsumeOptions as PullConsumeOptions
from popmq.pull import Pulled as Pulled
from popmq.pull import PulledColumns as PulledColumns
from popmq.pull import PullState as PullState
from popmq.pull import QueueLocks as QueueLocks
from popmq.schedule import Schedule as Schedule
from popmq.sink import BatchCommit as BatchCommit
from popmq.sink import StageName as StageName
from popmq.stats import AccessKey as AccessKey
from popmq.stats import AccessKeys as AccessKeys
from popmq.stats import BrokerInfo as BrokerInfo
from popmq.stats import ClientAnswer as ClientAnswer
from popmq.stats import ClientSession as ClientSession
from popmq.stats import ClientStats as ClientStats
from popmq.stats import ClusterBroker as ClusterBroker
from popmq.stats import ClusterBrokers as ClusterBrokers
from popmq.stats import DeadLetterReason as DeadLetterReason
from popmq.stats import DelayedMessage as DelayedMessage
from popmq.stats import DelayedMessages as DelayedMessages
from popmq.stats import Discarded as Discarded
from popmq.stats import FairKeyStats as FairKeyStats
from popmq.stats import Found as Found
from popmq.stats import GroupLife as GroupLife
from popmq.stats import GroupStats as GroupStats
from popmq.stats import History as History
from popmq.stats import HistoryPoint as HistoryPoint
from popmq.stats import Lease as Lease
from popmq.stats import Leases as Leases
from popmq.stats import LifeEvent as LifeEvent
from popmq.stats import MessageGroups as MessageGroups
from popmq.stats import MessageGroupState as MessageGroupState
from popmq.stats import MessageLife as MessageLife
from popmq.stats import Owner as Owner
from popmq.stats import Page as Page
from popmq.stats import QueueOffsets as QueueOffsets
from popmq.stats import QueueStats as QueueStats
from popmq.stats import RedriveFailure as RedriveFailure
from popmq.stats import Redriven as Redriven
from popmq.stats import Rescheduled as Rescheduled
from popmq.stats import Stats as Stats
from popmq.stats import StoreStats as StoreStats
from popmq.stats import TopicStats as TopicStats
from popmq.topic import Assignment as Assignment
from popmq.topic import FairKeyLimits as FairKeyLimits
from popmq.topic import FairKeys as FairKeys
from popmq.topic import Group as Group
from popmq.topic import LiteTopics as LiteTopics
from popmq.topic import Quota as Quota
from popmq.topic import Retention as Retention
from popmq.topic import Session as Session
from popmq.topic import Subscription as Subscription
from popmq.topic import Topic as Topic
from popmq.transaction import HalfMessage as HalfMessage
from popmq.transaction import HalfMessages as HalfMessages
from popmq.transaction import MessagePreview as MessagePreview
from popmq.transaction import TransactionCheck as TransactionCheck
from popmq.worker import Middleware as Middleware
from popmq.worker import Worker as Worker

__version__: str
__all__ = [
    "DELAY_LEVELS",
    "AccessKey",
    "AccessKeys",
    "Assignment",
    "AsyncBox",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncOutbox",
    "AsyncPullConsumer",
    "AsyncTransaction",
    "Attachment",
    "Availability",
    "BatchCommit",
    "Box",
    "BroadcastConsumeOptions",
    "BrokerInfo",
    "Client",
    "ClientAnswer",
    "ClientSession",
    "ClientStats",
    "ClusterBroker",
    "ClusterBrokers",
    "Columns",
    "ConsumeOptions",
    "Consumer",
    "DeadLetter",
    "DeadLetterReason",
    "DelayedMessage",
    "DelayedMessages",
    "Delivery",
    "Discarded",
    "EncodedMessages",
    "FairKeyLimits",
    "FairKeyStats",
    "FairKeys",
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
    "Outbox",
    "Owner",
    "OwnerLease",
    "Page",
    "PopMQError",
    "Position",
    "PullConsumeOptions",
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
    "Rescheduled",
    "Result",
    "Retention",
    "Retry",
    "RetryLater",
    "Schedule",
    "SealedBatch",
    "Send",
    "SendReceipt",
    "Session",
    "Snooze",
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
