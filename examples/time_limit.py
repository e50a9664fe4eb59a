r"""Pictures are drawn in a minute at most; the others are tried again, and after three attempts set aside.

popmq serve, then: python examples/time_limit.py (Ctrl-C ends it, Ctrl-\ prints where handlers stand)
"""

import asyncio
import random

import popmq

worker = popmq.Worker()


@worker.on("pictures", group="painters", timeout="1m")
def draw(name: str) -> None:
    """A thread cannot be ended from outside: what it calls has a time limit of its own, too."""
    print("drew", name)


@worker.on("weather", group="watchers", timeout=0.1)
async def ask(town: str) -> None:
    """A coroutine is cancelled at its limit, and the message is released: "timed out after 0.1 s"."""
    await asyncio.sleep(random.choice([0, 3600]) if town != "Nowhere" else 3600)
    print("the weather of", town)


def send(client: popmq.Client) -> None:
    for topic, group in (("pictures", "painters"), ("weather", "watchers")):
        client.topics.create(topic)
        client.groups.create(group, max_attempts=3, backoff="1s")
    client.send("pictures", "a boat")
    client.send("weather", ["Lisbon", "Nowhere"])


if __name__ == "__main__":
    with popmq.Client() as client:
        send(client)
    worker.run()
