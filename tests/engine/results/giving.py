"""Deliveries, and acks that give their results."""

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import GivenResult
from tests.engine.rig import Delivery, Rig


def leased(rig: Rig, *texts: str) -> list[Delivery]:
    rig.send(*texts)
    return rig.pop(len(texts))


def acking(rows: list[Delivery], *results: str | None, group: str = "g", kind: str = "") -> ask.Ack:
    """An Ack with a result for each delivery but those with None."""
    given = tuple(GivenResult(at, text.encode(), kind) for at, text in enumerate(results) if text is not None)
    return ask.Ack(group, tuple(row.handle for row in rows), given, sum(len(each.body) for each in given))
