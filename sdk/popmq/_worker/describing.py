"""A worker as an AsyncAPI 3.0 document: the topics that its handlers read, and what their messages contain.

    handler ─▶ operation "receive", by its group      ┐
    topic   ─▶ channel                                ├─ message ─▶ schema of the payload, by the type hint
    broker  ─▶ server                                 ┘

What a handler sends is not in it: its type hint is popmq.Send, which does not name a topic.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any

from popmq._worker.converting import named_type
from popmq._worker.handlers import Handler, needed_parameters
from popmq._worker.schemas import Schemas, doc_of
from popmq.message import Delivery

Document = dict[str, Any]
SCHEMAS, MESSAGES = "#/components/schemas/", "#/components/messages/"


def asyncapi(handlers: Sequence[Handler], endpoint: str, title: str, version: str) -> Document:
    """The document, of values that JSON and YAML have."""
    schemas = Schemas(SCHEMAS)
    channels: dict[str, Document] = {}
    messages: dict[str, Document] = {}
    operations: dict[str, Document] = {}
    for each in handlers:
        channel = _key(each.topic)
        name, message = _message(each, schemas)
        while messages.setdefault(name, message) != message:
            name += "_"
        entry = channels.setdefault(channel, {"address": each.topic, "messages": {}})
        entry["messages"][name] = {"$ref": MESSAGES + name}
        operation = _key(f"{each.group}.{each.topic}")
        while operation in operations:
            operation += "_"  # two handlers of lite topics
        operations[operation] = _operation(each, channel, name)
    return {
        "asyncapi": "3.0.0",
        "info": {"title": title, "version": version},
        "defaultContentType": "application/json",
        "servers": {"broker": {"host": endpoint, "protocol": "popmq"}},
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas.named},
    }


def _operation(handler: Handler, channel: str, message: str) -> Document:
    text = doc_of(handler.function)
    return {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{channel}"},
        "title": handler.name,
        **({"summary": text} if text else {}),
        "messages": [{"$ref": f"#/channels/{channel}/messages/{message}"}],
        "x-popmq": {"group": handler.group, **_options(handler)},
    }


def _options(handler: Handler) -> Document:
    """The filter, which decides what the handler gets."""
    filters = {name: handler.options.get(name) for name in ("tag", "sql")}
    return {name: value for name, value in filters.items() if value}


def _message(handler: Handler, schemas: Schemas) -> tuple[str, Document]:
    """The name of a message, and what it is."""
    kind = payload_of(handler)
    own = _key(handler.name.rpartition(".")[2])
    if kind is None:
        return own, {"name": own}
    if kind is bytes:
        return own, {"name": own, "contentType": "application/octet-stream"}
    if kind is str:
        return own, {"name": own, "contentType": "text/plain; charset=utf-8", "payload": {"type": "string"}}
    schema = schemas.of(kind)
    name = schemas.name_of(kind) or own
    return name, {"name": name, "contentType": "application/json", "payload": schema}


def payload_of(handler: Handler) -> Any:
    """The type of the payload; None if it takes the delivery only, or the worker does not know the format."""
    if handler.convert is not None:
        return None
    kinds = [named_type(each.annotation) for each in needed_parameters(handler.function, handler.name)]
    return next((kind for kind in kinds if kind not in (Delivery, inspect.Parameter.empty)), None)


def _key(name: str) -> str:
    """A name as a key that references can have."""
    return re.sub(r"[^\w.-]", "_", name)
