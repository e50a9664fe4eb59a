"""What a trigger of KEDA asks for: the keys of its metadata, validated.

topic, group       whose messages are counted; several topics are separated by commas, and their messages are added
target             messages for one replica
activation         there is work if there are more messages than this
inFlight           whether messages that are leased count
accessKey, accessKeyFromEnv, secretFromEnv    proof.py
"""

from collections.abc import Mapping
from typing import NamedTuple

from popmq_proto.keda import externalscaler_pb2 as pb
from popmq_server.errors import Refused, invalid
from popmq_server.protocols import validation
from popmq_server.protocols.native import requests

#: Messages for one replica, if the trigger does not say it.
TARGET = 10.0
#: Topics of one trigger.
TOPICS_MAX = 16
TARGET_MAX = 1e9
#: Read by KEDA itself, which sends them along.
_OF_KEDA = frozenset(
    ("scalerAddress", "enableTLS", "unsafeSsl", "tlsCertFile", "caCert", "tlsClientCert", "tlsClientKey")
)
KEYS = ("topic", "group", "target", "activation", "inFlight", "accessKey", "accessKeyFromEnv", "secretFromEnv")


class Trigger(NamedTuple):
    """One trigger of type external or external-push."""

    topics: tuple[str, ...]
    group: str
    target: float
    activation: float
    in_flight: bool


def metadata_of(method: str, raw: bytes) -> dict[str, str]:
    """The metadata in a request. Raises Refused."""
    if method == "GetMetrics":
        return dict(requests.read(pb.GetMetricsRequest, raw).scaledObjectRef.scalerMetadata)
    return dict(requests.read(pb.ScaledObjectRef, raw).scalerMetadata)


def read(metadata: Mapping[str, str]) -> Trigger:
    """Raises Refused, which names the key."""
    for key in sorted(metadata):
        _check_known(key)
    with requests.Paths(topic=_field("topic"), group=_field("group")):
        topics = tuple(validation.topic_name(name.strip()) for name in metadata.get("topic", "").split(","))
        group = validation.group_name(metadata.get("group", "").strip())
    if len(topics) > TOPICS_MAX or len({*topics}) < len(topics):
        raise invalid(
            f"topic names {len(topics)} topics; it may name {TOPICS_MAX}, each once",
            field=_field("topic"),
            action="use several triggers",
        )
    target, activation = _number(metadata, "target", TARGET), _number(metadata, "activation", 0.0)
    if not target:
        raise invalid("target is 0", field=_field("target"), action="name the messages for one replica")
    return Trigger(topics, group, target, activation, _switch(metadata, "inFlight"))


def _check_known(key: str) -> None:
    """A key with a typing error would be a setting that does not hold."""
    if key == "secret":
        raise invalid(
            "a secret does not belong into a trigger, which is stored in clear",
            field=_field(key),
            action="name the consumer's environment variable that has it: secretFromEnv",
        )
    if key not in KEYS and key not in _OF_KEDA:
        raise invalid(f"there is no key {key[:40]!r}", field=_field(key), action=f"use {', '.join(KEYS)}")


def _number(metadata: Mapping[str, str], key: str, default: float) -> float:
    text = metadata.get(key, "").strip()
    try:
        value = float(text or default)
    except ValueError:
        raise _wrong(key, text, f"a number from 0 to {TARGET_MAX:.0f}") from None
    if not 0 <= value <= TARGET_MAX:
        raise _wrong(key, text, f"a number from 0 to {TARGET_MAX:.0f}")
    return value


def _switch(metadata: Mapping[str, str], key: str) -> bool:
    text = metadata.get(key, "true").strip()
    if text not in ("true", "false"):
        raise _wrong(key, text, '"true" or "false"')
    return text == "true"


def _wrong(key: str, text: str, wanted: str) -> Refused:
    return invalid(f"{key} is {text[:40]!r}", field=_field(key), action=f"give it {wanted}")


def _field(key: str) -> str:
    return f"scalerMetadata.{key[:40]}"
