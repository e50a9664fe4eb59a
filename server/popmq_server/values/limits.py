"""Settings of topics and groups: their defaults and their bounds. Times in ms."""

#: Queues spread the load of many clients; each request goes to one of them.
QUEUES_DEFAULT = 8
#: A PRIORITY topic has a queue for each priority.
QUEUES_PRIORITY = 10
QUEUES_MAX = 1024
UNIQUE_IDS_MS_MAX = 86_400_000
BYTES_MAX_MIN = 1 << 20
#: How long a topic keeps messages that every group has passed.
KEEP_MS_DEFAULT = 72 * 3_600_000
KEEP_MS_MIN = 60_000
KEEP_MS_MAX = 10 * 365 * 24 * 3_600_000
#: The first delivery and 16 retries, as in RocketMQ.
MAX_ATTEMPTS_DEFAULT = 17
INVISIBLE_MS_DEFAULT = 60_000
#: Delays before attempt 2, 3, …, the last repeats: RocketMQ's table for pop consumers.
DELAYS_MS_DEFAULT = tuple(
    seconds * 1000 for seconds in (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)

#: Lite topics of one topic, by default and at most.
LITE_TOPICS_DEFAULT, LITE_TOPICS_MAX = 100_000, 1_000_000
#: How long an idle lite topic stays: as long as messages that every group has finished.
LITE_TTL_MS_DEFAULT = 72 * 3_600_000
LITE_TTL_MS_MIN = 60_000

#: Clients that may share a queue in addition to its first one, for a group or for a group in a topic.
SHARE_NUMBER_MAX = 10_000

#: The largest snoozes_max of a group.
SNOOZES_LIMIT_MAX = 10_000
#: Bounds of a group's subscription_expiry: how long a subscription is not read before it expires.
EXPIRY_MS_MIN, EXPIRY_MS_MAX = 3_600_000, 10 * 365 * 86_400_000

#: Fair keys of a group: bytes of the separator of labels, keys with limits of their own, messages of a key a second.
SEPARATOR_BYTES_MAX = 16
FAIR_EXCEPTIONS_MAX = 1000
KEY_MESSAGES_PER_S_MAX = 1_000_000
