"""Thumbnails with taskiq: a delay, a retry, a dead letter and results, all kept by PopMQ.

popmq serve, then: cd examples; taskiq worker taskiq_app:broker, and in another terminal: python taskiq_app.py
"""

import asyncio

from taskiq import SmartRetryMiddleware

from popmq_integrations.taskiq import PopMQBroker, PopMQResultBackend

NAMES = {"queue_name": "thumbs", "group_name": "thumbs"}
broker = PopMQBroker(**NAMES).with_result_backend(PopMQResultBackend(group_name="thumbs"))
broker.add_middlewares(SmartRetryMiddleware(default_retry_count=2, default_delay=0.2))


@broker.task(task_name="shrink", retry_on_error=True)
async def shrink(name: str) -> str:
    """Tried twice; what fails twice is a dead letter with its traceback."""
    if name.startswith("broken"):
        raise ValueError(f"{name} is no image")
    return f"thumbnail of {name}"


async def main() -> None:
    await broker.startup()
    now = await shrink.kiq("cat.png")
    later = await shrink.kicker().with_labels(delay=1).kiq("dog.png")
    broken = await shrink.kiq("broken.png")
    print((await now.wait_result(timeout=30)).return_value)
    print((await later.wait_result(timeout=30)).return_value)
    print(repr((await broken.wait_result(timeout=30)).error))
    page = await broker.client.messages.browse("%DLQ%thumbs", order="newest", max_messages=1)
    print(page.deliveries[0].dead_letter.reason)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
