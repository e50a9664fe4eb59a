"""Names of topics and groups, as PopMQ and as RocketMQ call them, and which of them are shown.

    PopMQ                  RocketMQ
    shop.orders            shop%orders                   brokers refuse the dot; `%` separates a namespace there too
    %DLQ%shop.bill         %DLQ%shop%bill                the dead letters of a group
    %RETRY%bill+orders     popmq_retry_ and a hash       what a pull group sent back: brokers refuse the `+`, so it is a
                                                         topic of the gateways'
    (not shown)            popmq_lock_bill               under it a group's queues are locked; no such group exists
    (not shown)            popmq_reader                  the group of pulls without a group
    (not shown)            CID_RMQ_SYS_POPMQ             the group of the gateways, by which they find each other

A lock of the group itself would send each message that is written to %RETRY%group straight to its dead letters.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable

from popmq_remoting import names
from popmq_remoting.errors import BadFormat
from popmq_server.errors import invalid
from popmq_server.values.message import DEAD_LETTER_PREFIX, RETRY_PREFIX

RETRY_TOPIC_PREFIX, LOCK_PREFIX, READER_GROUP = "popmq_retry_", "popmq_lock_", "popmq_reader"
GATEWAYS = "CID_RMQ_SYS_POPMQ"
_HIDDEN_PREFIXES = (RETRY_TOPIC_PREFIX, LOCK_PREFIX)
#: Groups and topics that every broker or proxy makes for itself.
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_SYSTEM_GROUPS = frozenset(
    (
        *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER", "SELF_TEST_C_GROUP", "SELF_TEST_P_GROUP"),
        *("CLIENT_INNER_PRODUCER", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_OWNER", "CID_ONSAPI_PERMISSION"),
        *("CID_ONSAPI_PULL", "DEFAULT_CONSUMER", "DEFAULT_PRODUCER"),
    )
)
_SYSTEM_TOPICS = frozenset(("DefaultHeartBeatSyncerTopic", "DefaultCluster", "%SYS%SCHEDULE_TOPIC"))


@functools.lru_cache(maxsize=4096)
def broker_topic(name: str, field: str = "topic") -> str:
    """What brokers call a topic. Raises Refused INVALID_FIELD.

    A retry topic of a pull group is found under its hidden name.
    """
    if name.startswith(RETRY_PREFIX):
        group, plus, topic = name.removeprefix(RETRY_PREFIX).partition("+")
        if not (plus and group and topic):
            raise invalid(f"there is no retry topic {name!r}", field=field, action="name it %RETRY%GROUP+TOPIC")
        return retry_topic(group, topic)
    if name.startswith(DEAD_LETTER_PREFIX):
        return names.dead_letter_topic(broker_group(name.removeprefix(DEAD_LETTER_PREFIX), field))
    known = _known(name, field, names.validate_topic)
    if known.startswith(_HIDDEN_PREFIXES):
        raise invalid(f"{field} {name!r} is a topic of the gateways", field=field, action="choose another name")
    return known


@functools.lru_cache(maxsize=4096)
def broker_group(name: str, field: str = "group") -> str:
    """What brokers call a group. Raises Refused INVALID_FIELD."""
    known = _known(name, field, names.validate_group)
    if known.startswith((*_HIDDEN_PREFIXES, _SYSTEM_GROUP_PREFIX)) or known in {READER_GROUP, *_SYSTEM_GROUPS}:
        raise invalid(
            f"{field} {name!r} is a group of the brokers or gateways", field=field, action="choose another name"
        )
    return known


def reading_group(group: str) -> str:
    """What brokers call the group of a read by offset. `group` "": a reader without one."""
    return broker_group(group) if group else READER_GROUP


def _known(name: str, field: str, validate: Callable[[str], None]) -> str:
    known = name.replace(".", "%")
    try:
        validate(known)
    except BadFormat as bad:
        raise invalid(
            f"{field} {name[:40]!r} is no name for RocketMQ: {bad}", field=field, action="rename it"
        ) from None
    return known


def retry_topic(group: str, topic: str) -> str:
    """The hidden topic of what a pull group sent back. Group and topic are named as PopMQ calls them."""
    both = f"{group.replace('.', '%')}+{topic.replace('.', '%')}"
    return RETRY_TOPIC_PREFIX + hashlib.blake2b(both.encode(), digest_size=16, person=b"popmq-retry").hexdigest()


def lock_group(group: str) -> str:
    """The group under which the queues of a group are locked. `group`: as brokers call it."""
    return LOCK_PREFIX + group


def shown(name: str) -> str:
    """What PopMQ calls a topic or group of the brokers."""
    prefix = DEAD_LETTER_PREFIX if name.startswith(DEAD_LETTER_PREFIX) else ""
    return prefix + name.removeprefix(prefix).replace("%", ".")


def shown_topics(topics: Iterable[str], of_servers: Iterable[str] = ()) -> list[str]:
    """The topics of users among all of a cluster, as PopMQ calls them, sorted; dead-letter topics included.

    Without those that no call can name: brokers of before 5.4 have longer groups, and tools make some with a dot.
    `of_servers`: names of brokers and of the cluster, each of which is also a topic of its own.
    """
    left_out = _SYSTEM_TOPICS.union(of_servers)
    return sorted(shown(topic) for topic in topics if topic not in left_out and _is_of_a_user(topic))


def _is_of_a_user(topic: str) -> bool:
    if topic.startswith(DEAD_LETTER_PREFIX):
        return _is_group_of_a_user(topic.removeprefix(DEAD_LETTER_PREFIX))
    return _is_valid(topic, names.validate_topic) and not topic.startswith(_HIDDEN_PREFIXES)


def shown_groups(groups: Iterable[str]) -> list[str]:
    """The groups of users among all of a cluster, as PopMQ calls them, sorted; without those that no call can name."""
    return sorted(shown(group) for group in groups if _is_group_of_a_user(group))


def _is_group_of_a_user(group: str) -> bool:
    own = group in _SYSTEM_GROUPS or group == READER_GROUP
    hidden = own or group.startswith((_SYSTEM_GROUP_PREFIX, *_HIDDEN_PREFIXES))
    return not hidden and _is_valid(group, names.validate_group)


def _is_valid(name: str, validate: Callable[[str], None]) -> bool:
    try:
        validate(name)
    except BadFormat:
        return False
    return True
