"""PopMQ: the thin client of a message broker that leases.

    import popmq

    with popmq.Client("127.0.0.1:8081") as client:
        client.topics.create("orders")
        client.groups.create("billing")
        client.send("orders", ["one", "two"])
        for delivery in client.consume("orders", "billing"):
            with delivery:  # acked on success, released with backoff on an exception, its lease renewed meanwhile
                print(delivery.text())

Calls beside sending and reading are in namespaces: `client.topics`, `client.groups`, `client.messages`, …
`popmq.AsyncClient` has the same methods for asyncio, `popmq.errors` the exceptions, `popmq.testing` a broker for tests.
"""

import importlib
from typing import Any

from popmq import errors as errors

__version__ = "0.1.0"

#: The public names, by module: their one table. Type checkers read __init__.pyi, which sdk/twin.py writes from it.
_NAMES = {
    "popmq._async.client": "AsyncClient",
    "popmq._async.consuming.consumer": "AsyncConsumer",
    "popmq._async.consuming.pull_consumer": "AsyncPullConsumer",
    "popmq._async.transaction": "AsyncTransaction",
    "popmq._calls.encoded": "EncodedMessages",
    "popmq._sync.client": "Client",
    "popmq._sync.consuming.consumer": "Consumer",
    "popmq._sync.consuming.pull_consumer": "PullConsumer",
    "popmq._sync.transaction": "Transaction",
    "popmq.config": "ConsumeOptions Retry Timeouts",
    "popmq.errors": "PopMQError",
    "popmq.message": "DELAY_LEVELS Columns DeadLetter Delivery Message Send SendReceipt TraceContext",
    "popmq.outbox": "AsyncBox AsyncOutbox Box Outbox",
    "popmq.outcome": "InvisibleTimeResult Reject Result RetryLater Snooze",
    "popmq.owner": "Attachment Availability Finished OwnerLease Position SealedBatch Token",
    "popmq.process_queue": "FlowControl",
    "popmq.pull": "BroadcastConsumeOptions PullConsumeOptions Pulled PulledColumns PullState QueueLocks",
    "popmq.schedule": "Schedule",
    "popmq.sink": "BatchCommit StageName",
    "popmq.stats": "AccessKey AccessKeys BrokerInfo ClientAnswer ClientSession ClientStats ClusterBroker "
    "ClusterBrokers DeadLetterReason DelayedMessage DelayedMessages Discarded FairKeyStats Found GroupLife GroupStats "
    "History HistoryPoint Lease Leases LifeEvent MessageGroupState MessageGroups MessageLife Owner Page QueueOffsets "
    "QueueStats RedriveFailure Redriven Rescheduled Stats StoreStats TopicStats",
    "popmq.topic": "Assignment FairKeyLimits FairKeys Group LiteTopics Quota Retention Session Subscription Topic",
    "popmq.transaction": "HalfMessage HalfMessages MessagePreview TransactionCheck",
    "popmq.worker": "Middleware Worker",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
#: Public modules that need no import of their own.
_SUBMODULES = (
    "config",
    "duration",
    "message",
    "outbox",
    "outcome",
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

__all__ = sorted([*_MODULES, "errors"])


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
