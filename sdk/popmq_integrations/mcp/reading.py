"""Tools that change nothing. Each takes names and limits, and answers with a bounded object (answers.py)."""

import dataclasses
from typing import Annotated

from pydantic import Field

import popmq
from popmq_integrations.mcp import answers
from popmq_integrations.mcp.answers import BODY_CHARS, BODY_CHARS_MAX, ROWS, ROWS_MAX, Answer

#: Events of a message in a group that are shown: the last ones.
EVENTS = 20

Topic = Annotated[str, Field(description="the name of a topic")]
Group = Annotated[str, Field(description="the name of a group")]
AnyTopic = Annotated[str, Field(description="only this topic; empty: all")]
AnyGroup = Annotated[str, Field(description="only this group; empty: all")]
Limit = Annotated[int, Field(description="rows at most", ge=1, le=ROWS_MAX)]
BodyChars = Annotated[int, Field(description="characters of each body at most", ge=0, le=BODY_CHARS_MAX)]


class Reading:
    """`client`: with the access key whose rights the agent has."""

    def __init__(self, client: popmq.AsyncClient) -> None:
        self._client = client

    async def list_topics(self, limit: Limit = ROWS_MAX) -> Answer:
        """The topics with their types and settings. stats has their numbers."""
        rows = [_topic(each) for each in await self._client.topics.list()]
        return answers.bounded("topics", rows, limit)

    async def list_groups(self, limit: Limit = ROWS_MAX) -> Answer:
        """The groups with their settings: attempts, backoff, lease. stats has what each still has to do."""
        rows = [_group(each) for each in await self._client.groups.list()]
        return answers.bounded("groups", rows, limit)

    async def stats(self, topic: AnyTopic = "", group: AnyGroup = "", limit: Limit = ROWS) -> Answer:
        """Numbers now. Of each group in each topic: what is ready, leased, waiting for a retry and dead, the age of the
        oldest unfinished message, rates; those with the largest backlog first. Of topics their messages, of the store
        its size. A number that is missing is 0; null: the engine does not know it.
        """
        found = await self._client.broker.stats(topic, group)
        groups = sorted(found.groups, key=lambda each: (-each.backlog, -each.dead))
        shown = answers.bounded("groups", map(_group_stats, groups), limit, "groups_left_out")
        topics = answers.bounded("topics", map(_topic_stats, found.topics), limit, "topics_left_out")
        return {**shown, **topics, "store": answers.set_numbers(dataclasses.asdict(found.store))}

    async def why(self, message_id: str, topic: AnyTopic = "", group: AnyGroup = "") -> Answer:
        """What happened to a message in each group (sent, popped, released, acked, dead), and where it is now."""
        lives = await self._client.messages.why(message_id, topic, group)
        return answers.bounded("found", map(_life, lives), ROWS)

    async def find_messages(
        self,
        topic: Topic,
        message_id: Annotated[str, Field(description="its id; or name a key")] = "",
        key: Annotated[str, Field(description="one of its keys")] = "",
        limit: Limit = ROWS,
        body_chars: BodyChars = BODY_CHARS,
    ) -> Answer:
        """Messages of a topic by their id or key, newest first, done or not."""
        found = await self._client.messages.look_up(topic, message_id, key, limit)
        rows = [answers.delivery(each, body_chars) for each in found.deliveries]
        return answers.bounded("messages", rows, limit, more=found.more)

    async def peek(self, topic: Topic, group: Group, limit: Limit = 5, body_chars: BodyChars = BODY_CHARS) -> Answer:
        """What the group would get next. Nothing is leased, and no consumer notices."""
        rows = [answers.delivery(each, body_chars) for each in await self._client.messages.peek(topic, group, limit)]
        return answers.bounded("messages", rows, limit)

    async def dead_letter_reasons(self, group: Group, topic: AnyTopic = "", limit: Limit = ROWS) -> Answer:
        """Why messages of a group became dead letters: each reason with how many there are, the first and the last."""
        rows = [
            {
                "messages": each.messages,
                "first": answers.moment(each.first_ms),
                "last": answers.moment(each.last_ms),
                "untrusted": {"reason": answers.cut(each.reason), "exception": each.exception},
            }
            for each in await self._client.dead_letters.reasons(group, topic)
        ]
        return answers.bounded("reasons", rows, limit)

    async def dead_letters(
        self,
        group: Group,
        offset: Annotated[int, Field(description="begin at this one: next_offset of the answer before", ge=0)] = 0,
        limit: Limit = ROWS,
        body_chars: BodyChars = BODY_CHARS,
    ) -> Answer:
        """Dead letters of a group, oldest first, with the reason and where each came from. They stay there."""
        await self._client.groups.get(group)
        try:
            page = await self._client.messages.browse(f"%DLQ%{group}", 0, offset, limit)
        except popmq.errors.TopicNotFound:
            page = popmq.Page((), 0, 0, 0)  # the topic is made by the first dead letter
        rows = [answers.delivery(each, body_chars) for each in page.deliveries]
        shown = answers.bounded("dead_letters", rows, limit)
        left_out = shown.pop("left_out", 0)
        next_offset = page.deliveries[-left_out].offset if left_out else page.next_offset
        return {**shown, "next_offset": next_offset if next_offset < page.max_offset else None}


def _topic(one: popmq.Topic) -> Answer:
    row = {"name": one.name, "type": one.type, "queues": one.queues, "created": answers.moment(one.created_ms)}
    closed = {} if one.permission == "READ_WRITE" else {"permission": one.permission}
    return row | closed | {"retention": dataclasses.asdict(one.retention)}


def _group(one: popmq.Group) -> Answer:
    row = dataclasses.asdict(one)
    row["created"] = answers.moment(row.pop("created_ms"))
    row["start"] = str(one.start)
    return answers.set_numbers(row, "max_attempts", "consume_enable")


def _group_stats(one: popmq.GroupStats) -> Answer:
    row = dataclasses.asdict(one)
    keys = [
        {"waiting": each.waiting, "in_flight": each.in_flight, "untrusted": {"key": each.key}}
        for each in one.busiest_keys
    ]
    for name, value in (("read", one.read_ms), ("expires", one.expires_ms)):
        del row[f"{name}_ms"]
        row[name] = None if value is None else answers.moment(value)
    row |= {"backlog": one.backlog, "busiest_keys": keys}
    return answers.set_numbers(row, "backlog", "ready", "in_flight", "dead")


def _topic_stats(one: popmq.TopicStats) -> Answer:
    row = dataclasses.asdict(one)
    row["queues"] = len(one.queues)
    return answers.set_numbers(row, "messages")


def _life(one: popmq.MessageLife) -> Answer:
    place = {"topic": one.topic, "place": one.place, "queue": one.queue, "offset": one.offset}
    times = {"stored": answers.moment(one.stored_ms), "due": answers.moment(one.due_ms)}
    groups = answers.bounded("groups", map(_group_life, one.groups), ROWS, "groups_left_out")
    return place | answers.known(times) | groups


def _group_life(one: popmq.GroupLife) -> Answer:
    events = [
        answers.known(
            {
                "what": each.what,
                "time": answers.moment(each.time_ms),
                "attempt": each.attempt,
                "untrusted": answers.known({"client_id": each.client_id, "reason": answers.cut(each.reason)}),
            }
        )
        for each in one.events[-EVENTS:]
    ]
    earlier = len(one.events) - len(events)
    return {
        "group": one.group,
        "state": one.state,
        **({"earlier_events": earlier} if earlier else {}),
        "events": events,
        "untrusted": {"explanation": answers.cut(one.explanation)},  # may quote a reason
    }
