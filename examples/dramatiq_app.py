"""Thumbnails with Dramatiq: a delay, a retry, a dead letter and results, all kept by PopMQ.

popmq serve, then: cd examples; dramatiq dramatiq_app, and in another terminal: python dramatiq_app.py
"""

import dramatiq
from dramatiq.results import ResultFailure, Results

from popmq_integrations.dramatiq import PopMQBackend, PopMQBroker

broker = PopMQBroker(namespace="thumbnails")
broker.add_middleware(Results(backend=PopMQBackend(namespace="thumbnails")))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True, max_retries=1, min_backoff=200, max_backoff=200)
def shrink(name: str) -> str:
    """Tried twice; what fails twice is a dead letter with its traceback."""
    if name.startswith("broken"):
        raise ValueError(f"{name} is no image")
    return f"thumbnail of {name}"


def main() -> None:
    now = shrink.send("cat.png")
    later = shrink.send_with_options(args=("dog.png",), delay=1000)
    broken = shrink.send("broken.png")
    print(now.get_result(block=True, timeout=30_000))
    print(later.get_result(block=True, timeout=30_000))
    try:
        broken.get_result(block=True, timeout=30_000)
    except ResultFailure as failure:
        print(failure)
    (letter,) = broker.client.messages.browse("%DLQ%thumbnails.default", order="newest", max_messages=1).deliveries
    print(letter.dead_letter.reason)
    broker.close()


if __name__ == "__main__":
    main()
