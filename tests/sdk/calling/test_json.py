"""Values that become JSON, and come back as they were."""

import dataclasses
import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

import popmq


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


def read(kind: Any, message: popmq.Message) -> Any:
    """What a handler gets whose parameter has this type."""

    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = kind
    worker = popmq.Worker()
    worker.on("orders", group="billing")(handler)
    (value,) = worker.handlers[0].arguments(popmq.Delivery(str(message.body).encode()))
    return value


NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_a_handler_reads_the_value_of_which_a_message_was_made() -> None:
    order = Order(UUID(int=7), NOW, [Part(Decimal("1.20"), Size.SMALL)], {"a"})
    assert read(Order, popmq.Message.json(order)) == order


def test_models_of_other_libraries_are_taken_wherever_they_are() -> None:
    pydantic, msgspec = pytest.importorskip("pydantic"), pytest.importorskip("msgspec")
    model = pydantic.create_model("Model", placed=(datetime, ...))
    struct = msgspec.defstruct("Struct", [("placed", datetime)])
    for kind in (model, struct):
        value = kind(placed=NOW)
        assert read(kind, popmq.Message.json(value)) == value
        body = str(popmq.Message.json({"all": [value, Size.SMALL]}).body)
        assert json.loads(body) == {"all": [{"placed": "2026-01-31T12:00:00Z"}, "s"]}


def test_a_model_of_pydantic_is_the_json_that_pydantic_makes_of_it() -> None:
    """A NaN in it is null: it made a worker's reply before, and a refusal would make the request a dead letter."""
    model = pytest.importorskip("pydantic").create_model("Model", price=(float | None, ...))
    assert popmq.Message.json(model(price=float("nan"))).body == '{"price":null}'
    assert popmq.Message.json([model(price=1.5)]).body == '[{"price":1.5}]'


@pytest.mark.parametrize(("value", "error"), [(float("nan"), ValueError), ({"a": object()}, TypeError)])
def test_a_value_that_json_has_no_form_for_is_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="JSON"):
        popmq.Message.json(value)
