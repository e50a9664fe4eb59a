"""Values as JSON: of Message.json, and what a worker's function returns to who sent a request."""

import dataclasses
import json
import sys
from collections.abc import Set
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID


def as_json(value: object) -> str:
    """Compact JSON, as `converting` reads it. Raises TypeError for what JSON has no form for, ValueError for NaN.

    Beside what JSON has: dataclasses, pydantic models, msgspec structs, enums, sets, times, UUID, Decimal.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON knows, of one value that it does not know."""
    if hasattr(value, "model_dump_json"):  # pydantic; only this has null for NaN, as its settings say
        return json.loads(value.model_dump_json())
    if hasattr(value, "__struct_fields__"):
        return sys.modules["msgspec"].to_builtins(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Set):
        return list(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    raise TypeError(f"JSON has no form for {value!r:.80}, of type {type(value).__name__}")
