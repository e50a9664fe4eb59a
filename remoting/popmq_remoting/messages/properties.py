"""The properties of a message, in one text: `name \x01 value \x02 name \x01 value \x02`, 32,767 bytes at most."""

from __future__ import annotations

from collections.abc import Mapping

from popmq_remoting.errors import BadFormat

BYTES_MAX = 32_767

_WORDS = """
    KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
    ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY
    EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE DUP_INFO
    CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __transactionId__ TRANSACTION_CHECK_TIMES INSTANCE_ID
    CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME
    __SHARDINGKEY PROPERTY_FORWARD_QUEUE_ID REDIRECT INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET TRACE_CONTEXT
    TIMER_DELAY_SEC TIMER_DELIVER_MS __BORNHOST BORN_TIMESTAMP TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES
    TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL TIMER_DELAY_MS __CRC32# DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID
    _SYS_MSG_PRIORITY_ __LITE_TOPIC
"""
#: Names that RocketMQ gives a meaning; a user's property must not have one.
OWN_NAMES = frozenset(_WORDS.split())
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

_SEPARATORS = "\x01\x02"


def is_own(name: str) -> bool:
    """Whether RocketMQ gives the name a meaning."""
    return name in OWN_NAMES or name.startswith(TRANSIENT_PREFIX)


def write(properties: Mapping[str, str]) -> str:
    """The text of these properties. Raises BadFormat for what the text cannot hold."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if "" in properties or any(text.count(mark) != len(properties) for mark in _SEPARATORS):
        raise BadFormat("a property has no name, or one of the bytes 1 and 2 in its name or value")
    size = len(text) if text.isascii() else len(text.encode())
    if size > BYTES_MAX:
        raise BadFormat(f"properties of {size} bytes, at most {BYTES_MAX}")
    return text


def read(raw: bytes) -> dict[str, str]:
    """The properties in a record, as brokers read them: without entries that have no value, the last one of a name."""
    entries = raw.decode("utf-8", "replace").split("\x02")
    return dict([entry.split("\x01", 1) for entry in entries if "\x01" in entry])
