"""Names of topics and groups, and of the topics that brokers derive from them.

    %RETRY%group            what 36 (send back) writes to
    %RETRY%group_topic      what a pop retries from; kind 1
    %RETRY%group+topic      the same with enableRetryTopicV2; kind 2. `+` occurs in no other name
    %DLQ%group              dead letters

Which of the two retry topics a message came from is told by its handle: a gateway never computes it.
"""

from __future__ import annotations

import re

from popmq_remoting.errors import BadFormat

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"
LITE_PREFIX = "%LMQ%"
#: Prefixes and names that users may not use.
RESERVED_PREFIXES = (RETRY_PREFIX, DEAD_LETTER_PREFIX, SYSTEM_PREFIX, LITE_PREFIX)
SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
#: The topic whose settings a new one takes; brokers ask for it in every send.
DEFAULT_TOPIC = "TBW102"

TOPIC_CHARACTERS_MAX = 127
#: Queues of a topic at a broker: more than any has. An answer with more is damaged, and would fill the memory.
QUEUES_MAX = 65_536
#: Since 5.4; 255 before, which makes retry topics that are too long.
GROUP_CHARACTERS_MAX = 120

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")

#: Kinds of topics in handles and infos of a pop.
NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"


def validate_topic(name: str) -> None:
    """Raises BadFormat for a name that brokers refuse, or that a user may not use."""
    _validate(name, "topic", TOPIC_CHARACTERS_MAX)
    if is_reserved(name):
        raise BadFormat(f"the topic name {name!r} is reserved by RocketMQ")


def validate_group(name: str) -> None:
    """Raises BadFormat for a name that brokers refuse."""
    _validate(name, "group", GROUP_CHARACTERS_MAX)


def is_reserved(topic: str) -> bool:
    """Whether a topic is the broker's own, or derived from a group."""
    return topic in SYSTEM_TOPICS or topic.startswith(RESERVED_PREFIXES)


def retry_topic(group: str) -> str:
    """Where 36 sends a message back to."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where dead letters of a group are."""
    return DEAD_LETTER_PREFIX + group


def pop_topic(kind: str, topic: str, group: str) -> str:
    """The topic that a popped message really came from: what an ack names. Raises BadFormat for another kind."""
    match kind:
        case "0":
            return topic
        case "1":
            return f"{RETRY_PREFIX}{group}_{topic}"
        case "2":
            return f"{RETRY_PREFIX}{group}+{topic}"
        case _:
            raise BadFormat(f"{kind!r} is no kind of topic")


def kind_of(topic: str) -> str:
    """The kind of a topic that a message of a pop names."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def _validate(name: str, what: str, characters_max: int) -> None:
    if not _NAME.fullmatch(name):
        raise BadFormat(f"the {what} name {name!r} has other characters than letters, digits, '_', '-', '%' and '|'")
    if len(name) > characters_max:
        raise BadFormat(f"the {what} name {name[:20]!r}… has {len(name)} characters, at most {characters_max}")
