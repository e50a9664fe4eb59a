"""What several tests of Dramatiq do."""

from collections.abc import Callable
from typing import Any

import dramatiq

from popmq_integrations.dramatiq import PopMQBroker


def taken(queues: PopMQBroker, queue_name: str = "default") -> tuple[Any, Any]:
    """(consumer, the next message of the queue)."""
    consumer = queues.consume(queue_name, prefetch=1, timeout=1000)
    while (message := next(consumer)) is None:
        pass
    return consumer, message


def actor(name: str, run: Callable[..., Any] = lambda *_: None, **options: Any) -> Any:
    """An actor of this name."""
    return dramatiq.actor(actor_name=name, **options)(run)
