"""What tests of workers share."""

from typing import Any

import popmq
from popmq.testing import Broker


def sent_to(broker: Broker, worker: popmq.Worker, *messages: Any, topic: str = "orders") -> popmq.Client:
    """A client, with the messages in the topic of a handler."""
    broker.declare(worker)
    client = broker.client()
    client.send(topic, list(messages))
    return client
