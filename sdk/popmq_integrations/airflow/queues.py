"""PopMQ for `airflow.providers.common.messaging`: MessageQueueTrigger(scheme="popmq", topic=…, group=…)."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from popmq_integrations.airflow.triggers import PopMQTrigger


class PopMQProvider(BaseMessageQueueProvider):  # type: ignore[misc]  # of Airflow, which is not installed here
    """Also for the older `queue="popmq://HOST:PORT/TOPIC?group=GROUP"`."""

    scheme = "popmq"

    def queue_matches(self, queue: str) -> bool:
        """Whether it is a URL of this scheme."""
        return queue.startswith("popmq://")

    def trigger_class(self) -> type[PopMQTrigger]:
        """The trigger of both forms."""
        return PopMQTrigger

    def trigger_kwargs(self, queue: str, **given: Any) -> dict[str, Any]:
        """What the URL says, without what is given beside it. Raises ValueError for a URL without a topic."""
        url = urlsplit(queue)
        topic = url.path.strip("/")
        if not topic:
            raise ValueError(f"{queue!r} has no topic: popmq://HOST:PORT/TOPIC?group=GROUP")
        said = {"endpoint": url.netloc, "topic": topic, "group": parse_qs(url.query).get("group", [""])[0]}
        return {name: value for name, value in said.items() if value and name not in given}
