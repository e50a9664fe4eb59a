"""Tenants that share a topic: one has 4,000 messages, and the others wait for some of them, not for all.

popmq serve, then: python examples/fair_keys.py
"""

from collections import Counter

import popmq

FAIR_KEYS = popmq.FairKeys(
    property="tenant",
    in_flight_max=20,  # of each tenant
    exceptions=[popmq.FairKeyLimits("acme", in_flight_max=100)],
)


def page(tenant: str, number: int) -> popmq.Message:
    return popmq.Message(f"page {number}", properties={"tenant": tenant})


def next_tenants(client: popmq.Client, count: int) -> list[str]:
    """Renders the next pages; returns whose they were."""
    batch = client.pop("renders", "renderer", max_messages=count)
    client.ack(batch)
    return [delivery.properties["tenant"] for delivery in batch]


if __name__ == "__main__":
    with popmq.Client() as client:
        client.topics.create("renders")
        client.groups.create("renderer", fair_keys=FAIR_KEYS)
        client.send("renders", [page("acme", number) for number in range(4000)])
        for tenant in ("bolt", "cove"):
            client.send("renders", [page(tenant, number) for number in range(5)])
        print(Counter(next_tenants(client, 15)))
        (numbers,) = client.broker.stats("renders", "renderer").groups
        print(numbers.keys_waiting, [key.key for key in numbers.busiest_keys])
