"""Answers of tools: of a bounded size, and with the texts that others wrote apart from what the broker says.

    {"message_id": …, "queue": 0, "stored": "2026-11-30T12:00:00Z", "untrusted": {"body": …, "reason": …}}

An agent reads an answer as it reads its user. A body that says "now purge the topic" must not look like a part of the
answer, so whatever a sender or a consumer wrote is below `untrusted`; the instructions of the server say what that
means.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import popmq

Answer = dict[str, Any]

#: Characters of JSON that the rows of an answer have at most: some 8,000 tokens.
ANSWER_CHARS = 30_000
#: Rows of an answer, and characters of a body: what a tool shows unless it is asked for more, and the most.
ROWS, ROWS_MAX = 20, 200
BODY_CHARS, BODY_CHARS_MAX = 500, 8_000
#: Characters of any other text that others wrote, and of all properties of a message.
TEXT_CHARS, PROPERTIES_CHARS = 1_000, 4_000


def moment(ms: int) -> str:
    """A time of the broker in UTC; "" for 0, which means none."""
    shown = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") if ms else ""
    return shown.replace("+00:00", "Z")


def known(values: Mapping[str, Any]) -> Answer:
    """Without what is not set. A number that the engine does not know stays, as null: it is not 0."""
    return {name: value for name, value in values.items() if value not in ("", (), [], {}) or value is None}


def set_numbers(values: Mapping[str, Any], *always: str) -> Answer:
    """Without what is 0 or off, but for `always`: most numbers of a broker are."""
    return {name: value for name, value in known(values).items() if value or value is None or name in always}


def bounded(name: str, rows: Iterable[Answer], most: int, left_out: str = "left_out", **beside: Any) -> Answer:
    """The rows as `name`, as far as they fit; `left_out` says how many do not."""
    shown: list[Answer] = []
    size = left = 0
    for row in rows:
        size += len(json.dumps(row, ensure_ascii=False, default=str))
        if left or len(shown) >= most or (shown and size > ANSWER_CHARS):
            left += 1
        else:
            shown.append(row)
    return {name: shown, **({left_out: left} if left else {}), **beside}


def cut(text: str, most: int = TEXT_CHARS) -> str:
    """The beginning of a text, with the number of characters that are missing."""
    return text if len(text) <= most else f"{text[:most]}… [{len(text) - most} characters more]"


def delivery(one: popmq.Delivery, body_chars: int) -> Answer:
    """A message: what the broker says of it, and `untrusted`, what its sender and its consumers wrote."""
    letter = one.dead_letter
    texts = {
        **_body(one, body_chars),
        "key": one.key,
        "more_keys": [*one.more_keys],
        "tag": one.tag,
        "message_group": one.message_group,
        "lite_topic": one.lite_topic,
        **_properties(one.properties),
        "reason": cut(letter.reason) if letter else "",
        "last_client": letter.last_client if letter else "",
    }
    dead = (
        {
            "dead_since": moment(letter.dead_ms),
            "from": {"topic": letter.topic, "queue": letter.queue, "offset": letter.offset},
            "attempts": letter.attempts,
        }
        if letter
        else {"attempt": one.attempt}
    )
    place = {"queue": one.queue, "offset": one.offset, "stored": moment(one.stored_ms)}
    return known({"message_id": one.message_id, **place, **dead, "untrusted": known(texts)})


def _properties(given: Mapping[str, str]) -> Answer:
    shown: dict[str, str] = {}
    size = 0
    for name, value in ((cut(name), cut(value)) for name, value in given.items()):
        size += len(name) + len(value)
        if size <= PROPERTIES_CHARS:
            shown[name] = value
    left = len(given) - len(shown)
    return {"properties": shown, **({"properties_left_out": left} if left else {})}


def _body(one: popmq.Delivery, most: int) -> Answer:
    """The body as text, or as base64 if it is none; its beginning, if it is long."""
    try:
        raw = one.unpacked()
    except ValueError:
        raw = one.body
    try:
        text, name = raw.decode(), "body"
    except UnicodeDecodeError:
        text, name = base64.b64encode(raw[:most]).decode(), "body_base64"
    shown = {name: text[:most], "body_bytes": len(raw)}
    return shown | ({"body_is_cut": True} if len(text) > most or (len(raw) > most and name != "body") else {})
