"""A chain of three topics: each order is in each of them exactly once, whenever a handler or the broker is killed.

popmq serve, then: python examples/settle.py (Ctrl-C ends it)
"""

import popmq

Order = dict[str, int]
worker = popmq.Worker()


@worker.on("orders", group="billing")
def bill(order: Order) -> popmq.Send:
    """What a handler returns is sent in the commit of its ack."""
    return popmq.Send("invoices", popmq.Message.json(order | {"total": order["count"] * order["price"]}))


@worker.on("invoices", group="archive")
async def archive(invoice: Order, delivery: popmq.Delivery) -> None:
    """`forward` collects messages, which are sent if the handler succeeds."""
    delivery.forward(popmq.Message.json(invoice, key=str(invoice["id"])), topic="archived")


def place_orders(client: popmq.Client, count: int) -> None:
    for topic in ("orders", "invoices", "archived"):
        client.topics.create(topic)
    client.send("orders", [popmq.Message.json({"id": number, "count": 2, "price": 5}) for number in range(count)])


if __name__ == "__main__":
    with popmq.Client() as client:
        place_orders(client, 10)
    worker.run(declare=True)
