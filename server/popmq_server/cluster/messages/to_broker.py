"""A validated popmq.v1.Message → what a broker stores. own.py has the table.

What RocketMQ cannot hold is refused at its field: keys with a blank, the bytes 1 and 2 in any text but the body,
properties of RocketMQ's names, more than 31 KiB of them, a delay of more than three days.
"""

from typing import NamedTuple

from popmq_remoting.codes import SysFlag
from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import properties
from popmq_server.cluster.messages import own
from popmq_server.contract.commands.messages import NewMessage
from popmq_server.errors import invalid
from popmq_server.values import fields, plain
from popmq_server.values.message import Extra

#: timerMaxDelaySec of a broker, unless it says another.
DELAY_MS_MAX = 3 * 86_400_000

_ENCODING, _TRACE, _BORN_MS, _BORN_HOST = 10, 11, 12, 16
_MARKS = "\x01\x02"


class BrokerMessage(NamedTuple):
    """A message as requests carry it. `text`: of its properties. `is_plain`: it may travel in a batch."""

    body: bytes
    properties: dict[str, str]
    text: str
    sys_flag: int
    born_ms: int
    is_plain: bool


class SendLimits(NamedTuple):
    """What depends on the time and the broker. `topic`: as brokers call it, which is also the producers' group."""

    topic: str
    now_ms: int
    delay_ms_max: int = DELAY_MS_MAX


def to_broker(message: NewMessage, limits: SendLimits) -> BrokerMessage:
    """Raises Refused INVALID_FIELD. Without a time of the producer's it was born now."""
    return _plain(message, limits) or _any(message, limits)


def _plain(message: NewMessage, limits: SendLimits) -> BrokerMessage | None:
    """`to_broker` for a plain message, at a third of the cost; None for any other, and for one that is refused."""
    read = message.plain or (plain.read(message.data) if message.extra is None else None)
    if read is None:
        return None
    _, body, _, born_ms, born_host = read
    message_id = message.message_id
    found, text = {"UNIQ_KEY": message_id}, f"UNIQ_KEY\x01{message_id}\x02"
    if message.tag:
        found["TAGS"] = message.tag
        text += f"TAGS\x01{message.tag}\x02"
    if born_host:
        found["__BORNHOST"] = host = born_host.decode()
        text += f"__BORNHOST\x01{host}\x02"
    if text.count("\x01") != len(found) or text.count("\x02") != len(found):
        return None
    return BrokerMessage(body, found, text, 0, born_ms or limits.now_ms, True)


def _any(message: NewMessage, limits: SendLimits) -> BrokerMessage:
    found = {"UNIQ_KEY": message.message_id}
    if message.tag:
        found["TAGS"] = message.tag
    if message.keys:
        found["KEYS"] = _joined(message.keys)
    body, encoding, born_ms = _put_fields(found, message.data)
    sys_flag = _encoding(found, body, encoding)
    if message.extra is not None:
        sys_flag |= _put_extra(found, message.extra, limits)
    is_plain = message.extra is None and not sys_flag
    return BrokerMessage(body, found, _text(found), sys_flag, born_ms or limits.now_ms, is_plain)


def _put_fields(found: dict[str, str], data: bytes) -> tuple[bytes, int, int]:
    """Puts into the properties what NewMessage does not say; returns the body, its encoding, when it was born."""
    body, encoding, born_ms = b"", 0, 0
    for field, value, _, end in fields.fields(data):
        if field == fields.BODY:
            body = data[end - value : end]
        elif field == fields.PROPERTIES:
            name, text = fields.pair(data[end - value : end])
            _check_name(name)
            found[name] = text
        elif field == _ENCODING:
            encoding = value
        elif field == _BORN_MS:
            born_ms = value
        elif field == _BORN_HOST and value:
            found["__BORNHOST"] = data[end - value : end].decode()
        elif field == _TRACE:
            _put_trace(found, data[end - value : end])
    return body, encoding, born_ms


def _joined(keys: tuple[str, ...]) -> str:
    text = " ".join(keys)
    if text.count(" ") != len(keys) - 1:
        index = next(index for index, key in enumerate(keys) if " " in key)
        raise invalid(
            f"the key {keys[index][:40]!r} has a blank: RocketMQ cannot tell it from two keys",
            field=f"keys[{index}]",
            action="replace the blank, for example by a dash, in the message and in look-ups",
        )
    return text


def _check_name(name: str) -> None:
    if not own.is_of_the_user(name):
        raise invalid(
            f"RocketMQ gives the property {name[:40]!r} a meaning of its own",
            field="properties",
            action="give the property another name",
        )


def _put_trace(found: dict[str, str], trace: bytes) -> None:
    for name, number in (("TRACE_CONTEXT", 1), (own.TRACE_STATE, 2)):
        if text := fields.text(trace, number):
            found[name] = text


def _encoding(found: dict[str, str], body: bytes, encoding: int) -> int:
    """The sysFlag of an encoding, if readers of other languages can unpack the body by it; else a property has it."""
    flag, beginning = own.FLAGS.get(encoding, (0, b""))
    if encoding and not (flag and body.startswith(beginning)):
        found[own.ENCODING] = str(encoding)
        return 0
    return flag


def _put_extra(found: dict[str, str], extra: Extra, limits: SendLimits) -> int:
    """Puts the options of a message into its properties; returns their sysFlag."""
    if extra.message_group:
        found["__SHARDINGKEY"] = extra.message_group
    if extra.priority:
        found["_SYS_MSG_PRIORITY_"] = str(extra.priority)
    if extra.due_ms:
        _check_delay(extra.due_ms - limits.now_ms, "deliver_at_ms", limits)
        found["TIMER_DELIVER_MS"] = str(extra.due_ms)
    if extra.delay_ms:
        _check_delay(extra.delay_ms, "delay_ms", limits)
        found["TIMER_DELAY_MS"] = str(extra.delay_ms)
    if not extra.transaction:
        return 0
    found["TRAN_MSG"] = "true"
    found["PGROUP"] = limits.topic
    # Always set: a broker then refuses ends that come after its first question, which a late one would deliver twice.
    found["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(-(-extra.check_after_ms // 1000) or own.CHECK_AFTER_S_DEFAULT)
    return int(SysFlag.PREPARED)


def _check_delay(delay_ms: int, field: str, limits: SendLimits) -> None:
    if delay_ms > limits.delay_ms_max:
        raise invalid(
            f"{field} is {delay_ms} ms ahead, at most {limits.delay_ms_max} are possible on this cluster",
            field=field,
            action="send it later, or let the operator raise timerMaxDelaySec of the brokers",
        )


#: The fields of a message that become properties, by the name of the property.
_FIELDS = {
    "UNIQ_KEY": "message_id",
    "TAGS": "tag",
    "KEYS": "keys",
    "__SHARDINGKEY": "message_group",
    "__BORNHOST": "born_host",
    "TRACE_CONTEXT": "trace_context",
    own.TRACE_STATE: "trace_context",
}


def _text(found: dict[str, str]) -> str:
    try:
        text = properties.write(found)
    except BadFormat:
        text = None
    if text is not None and (len(text) * 4 <= own.PROPERTIES_BYTES_MAX or _size(text) <= own.PROPERTIES_BYTES_MAX):
        return text
    for name, value in found.items():
        if any(mark in name or mark in value for mark in _MARKS):
            field = _FIELDS.get(name, "properties")
            raise invalid(
                f"{field} has one of the bytes 1 and 2, by which RocketMQ separates properties",
                field=field,
                action="leave these bytes out, or put the value into the body",
            )
    raise invalid(
        f"id, tag, keys and properties have more than {own.PROPERTIES_BYTES_MAX} bytes together",
        field="properties",
        action="put what is large into the body: RocketMQ stores at most 32 KiB of properties",
    )


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
