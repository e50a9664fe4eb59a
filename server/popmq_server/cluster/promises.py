"""What this engine lacks, and what it promises less than the embedded one: RocketMQ has no such thing, or no such rule.

A gateway keeps nothing, so what the brokers cannot keep is refused or said here, and never imitated in memory.
"""

from popmq_server.contract import capabilities as can
from popmq_server.contract.capabilities import Capability
from popmq_server.contract.commands.numbers import EngineInfo

ENGINE = "rocketmq"

#: Capabilities that no cluster has.
_LACKING = (
    *(can.OWNERS, can.STAGES, can.LITE, can.SEARCH, can.WHY, can.LIST_LEASES, can.END_LEASE, can.LIST_DELAYED),
    *(can.SETTLE, can.SNOOZE, can.TTL, can.RESCHEDULE, can.RESULTS, can.FAIR_KEYS),
    *(can.LIST_TRANSACTIONS, can.MESSAGE_GROUPS, can.FILTERS, can.DISCARD, can.DEAD_LETTER_REASONS, can.PURGE),
    *(can.SCHEDULES, can.BACKUP, can.MAX_SIZE, can.UNIQUE_IDS, can.QUOTAS, can.RETENTION, can.IN_FLIGHT_MAX),
    *(can.STOP_ON_FAILURE, can.EXCLUSIVE_OWNER, can.SUBSCRIPTION_EXPIRY),
)

#: By promise: what holds on a cluster.
WEAKER = {
    "dedup": "a Send that is repeated is stored again, with the same message id; the gateway itself repeats only what "
    "was surely not stored",
    "ack": "OK means that the broker took the ack; after a crash of a broker, what was acked since its last write of "
    "positions (flushConsumerOffsetInterval) is delivered again; one that comes too late is told by the clock alone, "
    "and a repeated one is OK",
    "uncounted": "each delivery counts as an attempt, also one that is released with `uncounted`",
    "attempt_ids": "a gateway remembers the answer of an attempt id for a minute, and 64 MiB of what is not acked of "
    "such answers; another gateway does not know it",
    "redelivery": "a released message, or one whose lease has ended, is delivered again 4 to 6 s later; in 0.3 s where "
    "brokers 5.5 have popConsumerKVServiceEnable",
    "transactions": "a gateway looks for the message before it commits; two commits within some milliseconds, by two "
    "gateways, deliver twice; an end after check_after_ms (6 s at least) is TRANSACTION_NOT_FOUND, and the answer to "
    "the broker's check ends it; the place of a message that has just been committed is not told",
    "recall": "OK means that the recall was asked for; a message that is due in the same second may be delivered",
    "statistics": "backlog, dead letters and rates are known, some seconds old; the other numbers are unknown",
    "read_your_writes": "a read by offset sees a message some milliseconds after its OK",
}


def info(lacking: frozenset[Capability] = frozenset()) -> EngineInfo:
    """What GetInfo says. `lacking`: what the weakest broker lacks beside it, such as recalls that are switched off."""
    names = frozenset(capability.name for capability in (*_LACKING, *lacking))
    return EngineInfo(ENGINE, names, WEAKER)
