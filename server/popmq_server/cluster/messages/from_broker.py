"""A stored message of a broker → the bytes of a popmq.v1.Message, also of one that a program of another make sent.

The bytes are encoded by hand: no generated code is known here, and it costs half. A body that its producer compressed
stays as it is, with its encoding. What has no place in popmq.v1.Message and is the broker's is left out.
"""

from collections.abc import Mapping

from popmq_remoting.codes import SysFlag
from popmq_remoting.messages import compression
from popmq_remoting.messages.properties import OWN_NAMES
from popmq_remoting.messages.stored import StoredMessage
from popmq_server.cluster import names
from popmq_server.cluster.messages import own
from popmq_server.values import plain
from popmq_server.values.message import DEAD_LETTER_PREFIX, varint

_NUMBER, _BYTES = 0, 2
_COMMITTED = int(SysFlag.COMMIT)
#: Properties of a plain message: its id, tag, birth and host, and those of the broker's that have no field.
_PLAIN = {*OWN_NAMES, own.BORN} - {
    *("KEYS", "TRAN_MSG", "CHECK_IMMUNITY_TIME_IN_SECONDS", "__SHARDINGKEY", "TRACE_CONTEXT", "TIMER_DELAY_SEC"),
    *("TIMER_DELAY_MS", "TIMER_DELIVER_MS", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC"),
}
_TRANSACTION_BITS = int(SysFlag.ROLLBACK)


def message_bytes(stored: StoredMessage, properties: Mapping[str, str]) -> bytes:
    """The popmq.v1.Message. `properties`: those of the message, as messages/properties.py of popmq_remoting reads them.

    A message without an id of its producer's has the one that names its place.
    """
    get = properties.get
    if properties.keys() <= _PLAIN and not stored.sys_flag and not stored.topic.startswith(DEAD_LETTER_PREFIX):
        born_ms = own.number(properties, own.BORN) or max(0, stored.born_ms)
        message_id = get("UNIQ_KEY") or stored.offset_id
        return plain.write(message_id.encode(), stored.body, get("TAGS", ""), born_ms, get("__BORNHOST", ""))
    parts = [_text(1, get("UNIQ_KEY") or stored.offset_id), _bytes(2, stored.body)]
    if tag := get("TAGS"):
        parts.append(_text(3, tag))
    parts += [_text(4, key) for key in get("KEYS", "").split(" ") if key]
    for name, value in properties.items():
        if own.is_of_the_user(name):
            parts.append(_bytes(5, _text(1, name) + _text(2, value)))
    if message_group := get("__SHARDINGKEY"):
        parts.append(_text(6, message_group))
    parts += [
        _number(7, own.number(properties, "TIMER_DELIVER_MS")),
        _number(8, own.number(properties, "_SYS_MSG_PRIORITY_")),
        *_transaction(stored, properties),
        _number(10, _encoding(stored, properties)),
        _trace(properties),
        _number(12, own.number(properties, own.BORN) or max(0, stored.born_ms)),
        _number(13, own.number(properties, "TIMER_DELAY_MS") or 1000 * own.number(properties, "TIMER_DELAY_SEC")),
    ]
    if stored.topic.startswith(DEAD_LETTER_PREFIX):
        parts.append(_dead_letter(stored, properties))
    if host := get("__BORNHOST"):
        parts.append(_text(16, host))
    if lite_topic := get("__LITE_TOPIC"):
        parts.append(_text(17, lite_topic))
    return b"".join(parts)


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _number(field: int, value: int) -> bytes:
    return varint(field << 3 | _NUMBER) + varint(value) if value else b""


def _transaction(stored: StoredMessage, properties: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Whether it is or was a half message, and after which time a broker asks about it."""
    is_half = properties.get("TRAN_MSG") == "true" or stored.sys_flag & _TRANSACTION_BITS == _COMMITTED
    after_s = own.number(properties, "CHECK_IMMUNITY_TIME_IN_SECONDS")
    after_ms = 0 if after_s == own.CHECK_AFTER_S_DEFAULT else 1000 * after_s
    return _number(9, is_half), _number(18, after_ms if is_half else 0)


def _encoding(stored: StoredMessage, properties: Mapping[str, str]) -> int:
    named = own.number(properties, own.ENCODING)
    return named or own.ENCODINGS.get(compression.method(stored.sys_flag, stored.body), 0)


def _trace(properties: Mapping[str, str]) -> bytes:
    parent, state = properties.get("TRACE_CONTEXT", ""), properties.get(own.TRACE_STATE, "")
    parts = [_text(number, text) for number, text in ((1, parent), (2, state)) if text]
    return _bytes(11, b"".join(parts)) if parts else b""


def _dead_letter(stored: StoredMessage, properties: Mapping[str, str]) -> bytes:
    """The origin of a dead letter that a broker or another program stored: its topic, and the counted attempts."""
    origin = properties.get("DLQ_ORIGIN_TOPIC", "")
    parts = [
        _text(1, names.shown(origin)),
        _number(2, own.number(properties, own.ORIGIN_QUEUE)),
        _number(3, own.number(properties, own.ORIGIN_OFFSET)),
        _number(4, own.number(properties, own.DEAD_ATTEMPTS) or max(0, stored.reconsume_times)),
        _number(5, own.number(properties, own.FIRST_POP)),
        _text(6, properties.get(own.CLIENT, "")),
        _text(7, properties.get(own.REASON, "")),
        _number(8, own.number(properties, own.DEAD_MS) or max(0, stored.stored_ms)),
    ]
    return _bytes(15, b"".join(parts))
