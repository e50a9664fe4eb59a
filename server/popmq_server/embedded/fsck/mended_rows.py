"""Mends damaged rows of topics and groups: keeps each readable field and the name, and adds defaults.

Without its row, a topic would lose its messages and a group its positions.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from popmq_server.embedded.store.keys import QUEUE_KEY, U32
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.limits import (
    DELAYS_MS_DEFAULT,
    INVISIBLE_MS_DEFAULT,
    KEEP_MS_DEFAULT,
    MAX_ATTEMPTS_DEFAULT,
)
from popmq_server.values.records import Group, Topic

#: Defaults for fields that `_group` of state/rows.py does not fill in.
_GROUP = {
    "max_attempts": MAX_ATTEMPTS_DEFAULT,
    "delays_ms": DELAYS_MS_DEFAULT,
    "invisible_ms": INVISIBLE_MS_DEFAULT,
    "share_number": 0,
    "start_from": "EARLIEST",
    "start_ms": 0,
    "exclusive_owner": False,
    "created_ms": 0,
}
_TOPIC = {"by_age": False, "keep_ms": KEEP_MS_DEFAULT, "created_ms": 0}
_KINDS: dict[str, tuple[str, Any]] = {"topic": ("t", Topic), "group": ("g", Group)}


def mended(kv: Transaction, table: str, key: bytes) -> bytes | None:
    """The row of a topic or a group as far as it can be read; None for rows of other tables, and without a name."""
    raw = kv.get(table, key)
    if table not in _KINDS or raw is None or len(key) != U32.size:
        return None
    kind, record = _KINDS[table]
    text = bytes(raw).decode(errors="replace")
    defaults = _GROUP if record is Group else _TOPIC | {"queues": _queues(kv, key)}
    row = defaults | dict(_readable(record, text))
    row[f"{table}_id"] = U32.unpack(key)[0]
    row["name"] = _name(kv, kind, key) or row.get("name")
    return json.dumps(row, ensure_ascii=False).encode() if row["name"] else None


def _readable(record: Any, text: str) -> Iterator[tuple[str, Any]]:
    """The fields that can be read, of the kind that the record expects."""
    for name in record._fields:
        found = re.search(f'"{name}": ', text)
        if found is None:
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(text, found.end())
        except ValueError:
            continue
        if type(value) in _EXPECTED[record.__annotations__[name]]:
            yield name, value


_EXPECTED: dict[Any, tuple[type, ...]] = {str: (str,), int: (int,), bool: (bool,), tuple[int, ...]: (list,)}
_EXPECTED |= {
    kind: (int,) for record in (Topic, Group) for kind in record.__annotations__.values() if kind not in _EXPECTED
}


def _name(kv: Transaction, kind: str, key: bytes) -> str:
    """The name that has this id."""
    for name, found in kv.scan("name", kind.encode()):
        if found == key:
            return name[1:].decode(errors="replace")
    return ""


def _queues(kv: Transaction, key: bytes) -> int:
    """How many queues of a topic have messages: at least 1."""
    keys = (found for table in ("queue", "cq") for found in kv.scan_keys(table, key))
    return max((QUEUE_KEY.unpack(found[: QUEUE_KEY.size])[1] + 1 for found in keys), default=1)
