"""Transaction ids: where a half message is, signed. Nothing about an open transaction is remembered.

    content   version [1] · from a check [1] · offset among half messages [8] · offset in the commit log [8] ·
              broker · topic · group · message id · transaction id, each with its length [1] before it

The group is empty in it if it is the topic's name, as it is here, and the transaction id if it is the message id.
"""

import struct
from typing import NamedTuple

from popmq_remoting.errors import BadFormat
from popmq_remoting.requests.sending import HalfPlace
from popmq_server.cluster.signed.secrets import BadText, Secrets
from popmq_server.errors import invalid

_VERSION = 1
_KIND = b"popmq txn"
_NUMBERS = struct.Struct(">B?qq")


class SignedHalf(NamedTuple):
    """A half message of a broker. `from_check`: the broker asked about it, so it takes an end of any age."""

    broker: str
    half: HalfPlace
    from_check: bool


def write(secrets: Secrets, signed: SignedHalf) -> str:
    """Its transaction id. Raises BadFormat for a place that no broker gives."""
    half = signed.half
    group = "" if half.group == half.topic else half.group
    transaction = "" if half.transaction_id == half.message_id else half.transaction_id
    texts = [text.encode() for text in (signed.broker, half.topic, group, half.message_id, transaction)]
    if max(map(len, texts)) > 255:
        raise BadFormat("a name of a half message has more than 255 bytes")
    try:
        numbers = _NUMBERS.pack(_VERSION, signed.from_check, half.half_queue_offset, half.commit_log_offset)
    except struct.error:
        raise BadFormat(f"no broker has a half message at {half.half_queue_offset}") from None
    return secrets.sign(_KIND, numbers + b"".join(bytes((len(text),)) + text for text in texts)).decode()


def read(secrets: Secrets, text: str, field: str = "transaction_id") -> SignedHalf:
    """What an id names. Raises Refused INVALID_FIELD."""
    try:
        content = secrets.open(_KIND, text)
        if content[0] != _VERSION:
            raise BadText("is of another version of PopMQ")
    except BadText as bad:
        raise invalid(
            f"this transaction id {bad}",
            field=field,
            action="pass the transaction id unchanged, as Send or the check returned it",
        ) from None
    _, from_check, offset, place = _NUMBERS.unpack_from(content)
    texts, at = list[str](), _NUMBERS.size
    while at < len(content):
        end = at + 1 + content[at]
        texts.append(content[at + 1 : end].decode())
        at = end
    broker, topic, group, message_id, transaction = texts
    half = HalfPlace(topic, group or topic, message_id, transaction or message_id, offset, place)
    return SignedHalf(broker, half, from_check)
