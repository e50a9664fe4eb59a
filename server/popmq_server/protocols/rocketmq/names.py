"""Names of topics and groups: maps Resources of this protocol to names of the engine.

    namespace "", name "orders"          orders
    namespace "shop", name "orders"      shop.orders         names of this protocol have no dot, so none collide
    namespace "shop", name "%DLQ%bill"   %DLQ%shop.bill      the dead letters of the group shop.bill

Some clients put the namespace into each Resource, some only into a header: the Resource's own wins. An answer echoes
the Resource of its request wherever there is one, since one client takes its namespace from the broker's answers.
"""

import functools
import re

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_server.protocols.rocketmq.status import Declined
from popmq_server.values.message import (
    DEAD_LETTER_PREFIX,
    GROUP_NAME_MAX,
    RETRY_PREFIX,
    TOPIC_NAME_MAX,
)

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_NAMESPACE = re.compile(r"[a-zA-Z0-9_.-]*\Z")
_RESERVED_TOPIC = re.compile(
    r"(TBW102|SCHEDULE_TOPIC_XXXX|BenchmarkTest|RMQ_SYS_.*|rmq_sys_.*|TRANS_CHECK_MAX_TIME_TOPIC|SELF_TEST_TOPIC"
    r"|OFFSET_MOVED_EVENT|CHECKPOINT_TOPIC)\Z"
)
_RESERVED_GROUP = "CID_RMQ_SYS_"
_PREFIXES = (DEAD_LETTER_PREFIX, RETRY_PREFIX)


def topic_name(resource: pb.Resource, namespace: str) -> str:
    """The engine's name of a topic. Raises Declined ILLEGAL_TOPIC."""
    return _topic_name(resource.resource_namespace or namespace, resource.name)


@functools.lru_cache(maxsize=4096)
def _topic_name(space: str, name: str) -> str:
    """Valid names are remembered: they are short, and each call has one."""
    if _RESERVED_TOPIC.match(name):
        raise Declined(pb.ILLEGAL_TOPIC, f"the topic {name} is reserved")
    return _name(space, name, pb.ILLEGAL_TOPIC, "topic", TOPIC_NAME_MAX)


def group_name(resource: pb.Resource, namespace: str) -> str:
    """The engine's name of a consumer group. Raises Declined ILLEGAL_CONSUMER_GROUP."""
    return _group_name(resource.resource_namespace or namespace, resource.name)


@functools.lru_cache(maxsize=4096)
def _group_name(space: str, name: str) -> str:
    if name.startswith(_RESERVED_GROUP):
        raise Declined(pb.ILLEGAL_CONSUMER_GROUP, f"the consumer group {name} is reserved")
    return _name(space, name, pb.ILLEGAL_CONSUMER_GROUP, "consumer group", GROUP_NAME_MAX)


def _name(space: str, name: str, code: pb.Code, what: str, characters_max: int) -> str:
    if not name.strip():
        raise Declined(code, f"the {what} is blank")
    if len(name) > characters_max or not _NAME.match(name) or not _NAMESPACE.match(space):
        raise Declined(
            code,
            f"the {what} {name[:40]!r} is invalid: at most {characters_max} letters, digits, '_', '-', '%' and '|'",
        )
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    whole = f"{prefix}{space}.{name.removeprefix(prefix)}" if space else name
    if not name.removeprefix(prefix) or len(whole) > characters_max + len(prefix):
        raise Declined(code, f"the {what} {whole[:40]!r} is too long, or empty after its prefix")
    return whole


def resource_of(name: str) -> pb.Resource:
    """The Resource of an engine's name, for messages that no request has named. The part before the last dot is the
    namespace, even for clients that send none in a header: the name was created with one.
    """
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    namespace, _, bare = name.removeprefix(prefix).rpartition(".")
    return pb.Resource(resource_namespace=namespace, name=prefix + bare)
