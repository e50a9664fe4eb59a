"""A message of kombu as one of PopMQ, and back."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from kombu.utils.json import dumps, loads

import popmq

PRIORITIES = 10
#: The properties that a message of AMQP has; others are for the producer only.
_PROPERTIES = (
    *("app_id", "cluster_id", "correlation_id", "delivery_mode", "expiration", "message_id", "priority", "reply_to"),
    *("timestamp", "type", "user_id"),
)
#: A broker takes no empty body.
_EMPTY = b"\0"


def encoded(message: Mapping[str, Any], exchange: str, routing_key: str, ttl: float = 0.0) -> popmq.Message:
    """The body stays as it is. The task's id is the key and its name the tag, so that both can be looked for.

    `ttl`: that of its queue in seconds, 0 for none; the shorter one counts. Priorities below 0 are 0.
    """
    headers, properties = message["headers"], message["properties"]
    body = message["body"]
    body = body.encode() if isinstance(body, str) else bytes(body)
    kept = {name: properties[name] for name in _PROPERTIES if name in properties}
    rest = {"headers": headers, "properties": kept}
    rest |= {name: message.get(name) for name in ("content-type", "content-encoding")}
    expiration = float(properties.get("expiration") or 0) / 1000
    return popmq.Message(
        body or _EMPTY,
        key=_fits(headers.get("id"), 128),
        tag=_fits(headers.get("task"), 64),
        properties={"exchange": exchange, "routing_key": routing_key, "kombu": dumps(rest)}
        | ({} if body else {"empty": "true"}),
        deliver_at=due(headers.get("eta")),
        priority=max(0, min(int(properties.get("priority") or 0), PRIORITIES - 1)),
        ttl=min((each for each in (ttl, expiration) if each > 0), default=0.0),
    )


def due(eta: object) -> datetime | None:
    """When a task is due. One without a zone waits in the worker: only its app knows which zone is meant."""
    with suppress(ValueError):
        at = datetime.fromisoformat(eta) if isinstance(eta, str) else None
        return at if at is not None and at.tzinfo is not None else None
    return None


def decoded(delivery: popmq.Delivery, tag: object) -> dict[str, Any]:
    """What kombu's virtual message is made of."""
    payload = _kept(delivery.properties.get("kombu", ""))
    payload["body"] = b"" if "empty" in delivery.properties else delivery.body
    payload["properties"] |= {
        "delivery_tag": tag,
        "delivery_info": {
            "exchange": delivery.properties.get("exchange", ""),
            "routing_key": delivery.properties.get("routing_key", ""),
            "redelivered": delivery.attempt > 1,
            "priority": delivery.priority,
        },
    }
    return payload


def _kept(text: str) -> dict[str, Any]:
    """What `encoded` has kept. A message that another client has sent, with whatever it says there, has no headers."""
    with suppress(Exception):  # of kombu's JSON, which also makes objects of other types
        kept = loads(text)
        if isinstance(kept["headers"], dict) and isinstance(kept["properties"], dict):
            return dict(kept)
    return {"headers": {}, "properties": {}}


def _fits(text: object, size: int) -> str:
    """The text, if it can be a key or a tag of this size in bytes; else nothing."""
    fits = isinstance(text, str) and len(text.encode()) <= size and text.isprintable() and not set(text) & set(" |")
    return str(text) if fits else ""
