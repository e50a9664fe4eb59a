"""Transfers wait while the bank is closed, without using up their attempts; offers are worth nothing after a minute.

popmq serve, then: python examples/snooze.py (Ctrl-C ends it)
"""

from datetime import UTC, datetime

import popmq

worker = popmq.Worker()
OPENS, CLOSES = 8, 18  # o'clock, UTC


@worker.on("transfers", group="bank")
def transfer(amount: str) -> None:
    """A snooze counts no attempt: the group's max_attempts are for transfers that fail."""
    if not OPENS <= datetime.now(UTC).hour < CLOSES:
        raise popmq.Snooze("10m", reason="the bank is closed")
    print("transferred", amount)


@worker.on("offers", group="shop")
def show(offer: str) -> None:
    """An offer that no handler gets within its ttl is dropped, and counted as such."""
    print("offered", offer)


def send(client: popmq.Client) -> None:
    for topic in ("transfers", "offers"):
        client.topics.create(topic)
    client.send("transfers", "100 EUR")
    client.send("offers", popmq.Message("two for one", ttl="1m"))


if __name__ == "__main__":
    with popmq.Client() as client:
        send(client)
    worker.run(declare=True)
