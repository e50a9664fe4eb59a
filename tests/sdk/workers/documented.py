"""A worker with handlers of all kinds, and the types of their payloads."""

import enum
from dataclasses import dataclass, field
from typing import Annotated, Literal, NotRequired, TypedDict

import msgspec
import pydantic

import popmq


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    """An order of the shop.

    It may have a parent.
    """

    number: int
    lines: list[Line]
    color: Color = Color.RED
    parent: "Order | None" = None
    notes: list[str] = field(default_factory=list)


class Mail(TypedDict):
    to: str
    cc: NotRequired[list[str]]


class Paid(pydantic.BaseModel):
    amount: float
    how: Literal["card", "cash"]
    before: "Paid | None" = None


class Seen(msgspec.Struct):
    place: str
    after: "Seen | None" = None


class Account:
    class Line(pydantic.BaseModel):
        """Another class of this name."""

        iban: str


Amount = Annotated[float, "in euros"]


def shop() -> popmq.Worker:
    worker = popmq.Worker("mq.example:8081")

    @worker.on("orders", group="billing", tag="new || paid")
    def bill(order: Order) -> popmq.Send:
        """Bills an order.

        And sends an invoice.
        """
        raise NotImplementedError

    @worker.on("orders", group="audit")
    def audit(order: Order, delivery: popmq.Delivery) -> None: ...

    @worker.on("orders", group="archive")
    def archive(body: bytes) -> None: ...

    @worker.on("%DLQ%billing", group="repair")
    def repair(delivery: popmq.Delivery) -> None: ...

    @worker.on("texts", group="billing")
    async def read(text: str) -> None: ...

    @worker.on("csv", group="billing", convert=lambda delivery: delivery.text().split(","))
    def rows(parts: list[str]) -> None: ...

    @worker.on("lines", group="billing")
    def lines(line: Line) -> None: ...

    @worker.on("accounts", group="billing")
    def accounts(line: Account.Line) -> None: ...

    return worker
