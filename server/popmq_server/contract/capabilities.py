"""Capabilities: the parts of the contract that an engine may lack.

An engine says what it lacks (`Engine.info`), and what needs it is refused before it reaches the engine (limited.py).
The rest of the contract, sending, pops, acks, topics and groups, is served by every engine. A command or query names
the capability that it needs, one on settings those of what it asks for; those of the methods of Engine stand in
limited.py.
"""

from typing import NamedTuple


class Capability(NamedTuple):
    """`what`: its calls, for a message to people. `instead`: what to use where it is missing."""

    name: str
    what: str
    instead: str


OWNERS = Capability(
    "owners", "durable owners with sealed tokens", "Pull and UpdateOffsets; a range of offsets can be read again"
)
STAGES = Capability(
    "stages",
    "batches of a sink",
    "Send, with message ids that follow from the rows, so that readers recognize a repeat",
)
LITE = Capability("lite", "lite topics", "a FIFO topic with message groups, or a topic for each")
RECALL = Capability("recall", "recalling delayed messages", "let the consumer skip messages that are no longer valid")
RESCHEDULE = Capability("reschedule", "moving delayed messages to another time", "Recall, and Send again")
TRANSACTIONS = Capability(
    "transactions", "transactions with check-back", "Send after the local transaction has committed"
)
PULL = Capability("pull", "reading by offset", "Pop and Ack")
QUEUE_LOCKS = Capability("queue_locks", "locks of queues", "a FIFO topic with message groups")
RESET_OFFSETS = Capability("reset_offsets", "moving a group's position", "a new group with the wanted start")
WAIT_AVAILABLE = Capability("wait_available", "waiting without a lease", "Pop with wait_ms")
PEEK = Capability("peek", "looking at messages without a lease", "Pull without a group")
BROWSE = Capability("browse", "reading messages by position", "Pull without a group")
SEARCH = Capability(
    "search", "reading messages of all queues by time, and searching them", "Browse the queues one by one"
)
LOOK_UP = Capability("look_up", "finding messages by id and key", "Browse the topic")
WHY = Capability("why", "the history of a message", "LookUp, and GetStats for the position of the group")
LIST_LEASES = Capability("list_leases", "lists of leases", "GetStats counts them")
SETTLE = Capability(
    "settle",
    "acks and sends in one commit",
    "Send, then Ack, with message ids that follow from the input, so that readers recognize a repeat",
)
SNOOZE = Capability(
    "snooze",
    "releases that count no attempt, and a group's `snoozes_max`",
    "release with a delay, and more attempts for the group",
)
TTL = Capability("ttl", "messages that expire", "let the consumer skip messages that are too old")
RESULTS = Capability(
    "results",
    "results of messages",
    "a message with the result, to a topic that the caller reads (`client.request` does so)",
)
END_LEASE = Capability("end_lease", "ending a lease early", "wait for its deadline")
LIST_DELAYED = Capability("list_delayed", "lists of delayed messages", "GetStats counts them")
LIST_TRANSACTIONS = Capability("list_transactions", "lists of half messages", "GetStats counts them")
MESSAGE_GROUPS = Capability(
    "message_groups",
    "lists of message groups, and resuming them",
    "GetStats counts waiting messages; a new attempt follows each backoff",
)
FILTERS = Capability("filters", "filters of groups", "name the filter in each Pop")
REDRIVE = Capability("redrive", "delivering dead letters again", "pop the dead-letter topic, and Send")
DISCARD = Capability("discard", "removing dead letters", "pop the dead-letter topic, and Ack")
DEAD_LETTER_REASONS = Capability(
    "dead_letter_reasons", "counts of dead letters by reason", "Browse the dead-letter topic"
)
PURGE = Capability("purge", "emptying a topic", "delete and create it, or shorten its retention")
SCHEDULES = Capability("schedules", "schedules", "a cron of the machine that runs `popmq send`")
BACKUP = Capability("backup", "backups of the store", "the backup of the engine's own storage")
MAX_SIZE = Capability("max_size", "a limit of the store's size", "the retention of topics")
UNIQUE_IDS = Capability(
    "unique_ids",
    "message ids that a topic stores once",
    "consumers that recognize the id of a message they have handled",
)
QUOTAS = Capability("quotas", "limits of a topic's rates and sizes", "the limits of access keys")
RETENTION = Capability("retention", "retention of a topic's own", "the retention of the engine's own storage")
IN_FLIGHT_MAX = Capability("in_flight_max", "a limit of a group's leased messages", "pop fewer messages at once")
STOP_ON_FAILURE = Capability(
    "stop_on_failure", "stopping a message group at a failure", "more attempts, with a longer backoff"
)
EXCLUSIVE_OWNER = Capability(
    "exclusive_owner", "messages that only their owner gets", "a group that no other consumer pops"
)
SUBSCRIPTION_EXPIRY = Capability(
    "subscription_expiry", "expiry of idle subscriptions", "delete groups that are no longer used"
)

FAIR_KEYS = Capability(
    "fair_keys", "turns by fair key", "a FIFO topic with message groups, or a topic for each tenant with many messages"
)

#: All capabilities, by name.
CAPABILITIES = {
    each.name: each
    for each in (
        OWNERS,
        STAGES,
        LITE,
        RECALL,
        RESCHEDULE,
        TRANSACTIONS,
        PULL,
        QUEUE_LOCKS,
        RESET_OFFSETS,
        WAIT_AVAILABLE,
        PEEK,
        BROWSE,
        SEARCH,
        LOOK_UP,
        WHY,
        LIST_LEASES,
        SETTLE,
        SNOOZE,
        TTL,
        RESULTS,
        END_LEASE,
        LIST_DELAYED,
        LIST_TRANSACTIONS,
        MESSAGE_GROUPS,
        FILTERS,
        REDRIVE,
        DISCARD,
        DEAD_LETTER_REASONS,
        PURGE,
        SCHEDULES,
        BACKUP,
        MAX_SIZE,
        UNIQUE_IDS,
        QUOTAS,
        RETENTION,
        IN_FLIGHT_MAX,
        STOP_ON_FAILURE,
        EXCLUSIVE_OWNER,
        SUBSCRIPTION_EXPIRY,
        FAIR_KEYS,
    )
}
