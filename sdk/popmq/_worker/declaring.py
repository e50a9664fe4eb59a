"""Creates the topics and groups of handlers."""

import logging
from collections.abc import Sequence

from popmq._async.client import AsyncClient
from popmq._worker.handlers import Handler

log = logging.getLogger("popmq.worker")


async def declare_missing(client: AsyncClient, handlers: Sequence[Handler]) -> None:
    """Creates those that are not there, with default settings."""
    topics = {each.name for each in await client.topics.list()}
    groups = {each.name for each in await client.groups.list()}
    for topic in dict.fromkeys(each.topic for each in handlers if each.topic not in topics):
        await client.topics.create(topic)
        log.info("topic %s was created", topic)
    for group in dict.fromkeys(each.group for each in handlers if each.group not in groups):
        await client.groups.create(group)
        log.info("group %s was created", group)
