"""Tools that change something. The server has those that --allow names, and no others."""

from typing import Annotated

from pydantic import Field

import popmq
from popmq_integrations.mcp import answers
from popmq_integrations.mcp.answers import Answer
from popmq_integrations.mcp.reading import Group, Topic

#: Failures of a redrive that an answer names.
FAILURES = 20


class Changing:
    """`client`: with the access key whose rights the agent has."""

    def __init__(self, client: popmq.AsyncClient) -> None:
        self._client = client

    async def redrive(
        self,
        group: Group,
        message_ids: Annotated[list[str], Field(description="these dead letters", max_length=200)] = [],  # noqa: B006  # never changed
        reason: Annotated[str, Field(description="or all with this reason, as dead_letter_reasons has it")] = "",
        exception: Annotated[str, Field(description="or all whose reason begins with this exception")] = "",
        topic: Annotated[str, Field(description="of the above only those from this topic")] = "",
        all_dead_letters: Annotated[bool, Field(description="or all of the group")] = False,
    ) -> Answer:
        """Delivers dead letters of a group again, from their first attempt. Name messages, a reason or an exception."""
        if not (message_ids or reason or exception or all_dead_letters):
            raise popmq.errors.InvalidField(
                "nothing says which dead letters",
                action="name message_ids, a reason or an exception, or all_dead_letters",
            )
        done = await self._client.dead_letters.redrive(
            group, message_ids=message_ids, reason=reason or None, exception=exception, topic=topic
        )
        failures = [{"message_id": each.message_id, "error": str(each.error)} for each in done.failures]
        return {"redriven": done.redriven, **answers.bounded("failures", failures, FAILURES)}

    async def purge(
        self, topic: Topic, confirm: Annotated[str, Field(description="the name of the topic once more")]
    ) -> Answer:
        """Removes ALL messages of a topic, for all groups, for ever."""
        if confirm != topic:
            raise popmq.errors.InvalidField(
                f"confirm is {confirm!r}, the topic {topic!r}", action="give the name of the topic twice, to be sure"
            )
        return {"removed": await self._client.topics.purge(topic)}

    async def send(
        self,
        topic: Topic,
        body: Annotated[str, Field(description="the message, as text or JSON", min_length=1)],
        key: Annotated[str, Field(description="for look-ups")] = "",
        tag: Annotated[str, Field(description="one word for filters")] = "",
        message_group: Annotated[str, Field(description="FIFO topics need it: messages of one keep their order")] = "",
        delay: Annotated[str, Field(description="deliver after, such as 90s or 1h30m; not in NORMAL topics")] = "",
        properties: Annotated[dict[str, str], Field(description="more texts with names")] = {},  # noqa: B006  # never changed
    ) -> Answer:
        """Sends one message; it is on the broker's disk when this answers."""
        message = popmq.Message(
            body, key=key, tag=tag, message_group=message_group, delay=delay or 0.0, properties=properties
        )
        receipt = await self._client.send(topic, message)
        assert isinstance(receipt, popmq.SendReceipt)
        return {"message_id": receipt.message_id, "queue": receipt.queue, "offset": receipt.offset}
