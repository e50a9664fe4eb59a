"""Values that become JSON, and come back as they were."""

import dataclasses
import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

import popmq
from popmq._worker.converting import converter


class Size(Enum):
    SMALL = "s"


@dataclasses.dataclass
class Part:
    price: Decimal
    size: Size


@dataclasses.dataclass
class Order:
    number: UUID
    placed: datetime
    parts: list[Part]
    tags: set[str]


class Model(pydantic.BaseModel):
    placed: datetime


class Struct(msgspec.Struct):
    placed: datetime


NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        Order(UUID(int=7), NOW, [Part(Decimal("1.20"), Size.SMALL)], {"a"}),
        Model(placed=NOW),
        Struct(placed=NOW),
    ],
)
def test_a_handler_reads_the_value_of_which_a_message_was_made(value: Any) -> None:
    body = popmq.Message.json(value).body
    assert isinstance(body, str)
    assert converter(type(value))(body.encode()) == value


def test_values_inside_of_lists_and_dicts_are_taken_too() -> None:
    body = popmq.Message.json({"all": [Model(placed=NOW), Size.SMALL, None]}).body
    assert json.loads(str(body)) == {"all": [{"placed": "2026-01-31T12:00:00Z"}, "s", None]}


@pytest.mark.parametrize(("value", "error"), [(float("nan"), ValueError), ({"a": object()}, TypeError)])
def test_a_value_that_json_has_no_form_for_is_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="JSON"):
        popmq.Message.json(value)
