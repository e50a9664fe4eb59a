"""Messages: searches by id, key, time or place; shows one as JSON, text or hex, and its state in each group.

Nothing here leases or changes a message. The right to receive the topic, or admin, lets one look.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import popmq
from popmq_console.asking import UINT32_MAX, Ask, moment_of, tried, whole
from popmq_console.views import counted, is_text

SHOWN = 50
#: Begins the names of retries: their entries are read by number only.
RETRIES = "%RETRY%"
#: What selects messages; without any the page shows the newest.
FIELDS = ("q", "id", "key", "at", "queue", "offset")
#: Queues that are read for a search by time; a topic with more is asked queue by queue.
QUEUES_MAX = 64
Found = tuple[list[popmq.Delivery], str, dict[str, str]]


async def messages(ask: Ask) -> dict[str, Any]:
    """The form, and its results: by key, by id, by time or by place. Raises TopicNotFound, InvalidField.

    Without a word about which, the newest of all queues: there is always something to look at.
    """
    topic = ask.value("topic")
    newest = bool(topic) and not any(ask.value(name) for name in (*FIELDS, "after"))
    nothing: Found = ([], "", {})
    (found, more, following), refusal = await tried(_found(ask, topic), nothing) if topic else (nothing, None)
    return {
        "topic": topic,
        "found": found,
        "more": more,
        "following": following,
        "refusal": refusal,
        "fields": {name: ask.value(name) for name in FIELDS},
        "newest": newest,
        "tail": newest and bool(ask.value("live")),
        "names": [one.topic for one in (await ask.login.numbers.stats()).topics[:1000]],
    }


async def _found(ask: Ask, topic: str) -> Found:
    """(messages, a sentence about further ones, the fields that show them)."""
    if ask.value("id") or ask.value("key"):
        found = await ask.client.messages.look_up(
            topic, "" if ask.value("key") else ask.value("id"), ask.value("key"), SHOWN
        )
        return list(found.deliveries), "There are more, older ones." if found.more else "", {}
    if ask.value("at"):
        return await _since(ask, topic, moment_of(ask.value("at")), ask.value("after"))
    if not topic.startswith(RETRIES) and not ask.value("queue") and not ask.value("offset"):
        return await (_newest(ask, topic) if ask.login.has("search") else _ends(ask, topic))
    queue = ask.place("queue", UINT32_MAX)
    page = await ask.client.messages.browse(topic, queue, ask.place("offset"), SHOWN)
    more = page.next_offset < page.max_offset
    following = {"topic": topic, "queue": str(queue), "offset": str(page.next_offset)} if more else {}
    sentence = f"Queue {queue}: offsets {page.min_offset:,} to {page.max_offset:,}, the last one not included."
    return list(page.deliveries), sentence, following


async def _newest(ask: Ask, topic: str) -> Found:
    """The newest messages of all queues, or those of them that have a text. One page reads a bounded part of the topic.

    A text is looked for in id, body, tag, key, property, message group and dead-letter reason.
    """
    search = ask.value("q")
    page = await ask.client.messages.browse(
        topic, max_messages=SHOWN, order="newest", search=search, page_token=ask.value("after")
    )
    looked_at = (whole(ask.value("looked_at")) or 0) + page.looked_at
    following = {"topic": topic, "q": search, "after": page.next_page_token, "looked_at": str(looked_at)}
    sentence = ""
    if search:
        end = "older ones are not looked at yet" if page.next_page_token else "that is all"
        sentence = f"{search!r} was looked for in {counted(looked_at, 'message')}; {end}."
    return list(page.deliveries), sentence, following if page.next_page_token else {}


async def _ends(ask: Ask, topic: str) -> Found:
    """The newest of the last messages of each queue, where the broker reads no topic as a whole."""
    queues = (await ask.client.offsets.query(topic))[:QUEUES_MAX]
    begins = {one.queue: max(one.min_offset, one.max_offset - SHOWN) for one in queues}
    pages = await asyncio.gather(
        *(ask.client.messages.browse(topic, queue, offset, SHOWN) for queue, offset in begins.items())
    )
    found = [one for page in pages for one in page.deliveries]
    return sorted(found, key=lambda one: (-one.stored_ms, one.queue, -one.offset))[:SHOWN], "", {}


async def _since(ask: Ask, topic: str, at: datetime, after: str) -> Found:
    """The first messages of all queues that were stored at a time or later: by time, then queue, then offset.

    A batch has one time, and may have more messages than a page. `after`, queue.offset, is the last one of that time
    that was shown: of the queues before it every message of that time was, too.
    """
    starts = await _starts(ask, topic, at)
    queue, offset = (whole(part) for part in after.partition(".")[::2])
    if queue is not None and offset is not None:
        later = await _starts(ask, topic, at + timedelta(milliseconds=1))
        starts = {each: later.get(each, 0) if each < queue else place for each, place in starts.items()}
        starts[queue] = offset + 1
    pages = await asyncio.gather(
        *(ask.client.messages.browse(topic, each, place, SHOWN) for each, place in starts.items())
    )
    found = (one for page in pages for one in page.deliveries)
    rows = sorted(found, key=lambda one: (one.stored_ms, one.queue, one.offset))[:SHOWN]
    if len(rows) < SHOWN:
        return rows, "", {}
    last = rows[-1]
    stored = datetime.fromtimestamp(last.stored_ms / 1000, UTC).isoformat(timespec="milliseconds")
    following = {"topic": topic, "at": stored.removesuffix("+00:00"), "after": f"{last.queue}.{last.offset}"}
    return rows, "", following


async def _starts(ask: Ask, topic: str, at: datetime) -> dict[int, int]:
    """By queue, the offset of its first message that was stored at a time or later; its end when there is none."""
    offsets = (await ask.client.offsets.query(topic, at=at))[:QUEUES_MAX]
    return {one.queue: one.at_timestamp if one.at_timestamp >= 0 else one.max_offset for one in offsets}


async def message(ask: Ask) -> dict[str, Any]:
    """One message by its place, and its life in each group. Raises TopicNotFound, MessageNotFound.

    The place identifies it: ids repeat in topics that do not compare them. Unless a form is chosen the body is shown as
    JSON if it is valid JSON, else as text, and in hex if it is not UTF-8.
    """
    topic, queue, offset = ask.value("topic"), ask.place("queue", UINT32_MAX), ask.place("offset")
    page = await ask.client.messages.browse(topic, queue, offset, 1)
    delivery = next((one for one in page.deliveries if one.offset == offset), None)
    if delivery is None:
        raise popmq.errors.MessageNotFound(
            f"queue {queue} of {topic} has no message at offset {offset:,}", code="MESSAGE_NOT_FOUND"
        )
    form = ask.value("as") if ask.value("as") in ("json", "text", "hex") else ""
    if not form and not is_text(delivery.body):
        form = "hex"
    return {
        "delivery": delivery,
        "topic": topic,
        "form": form,
        "lives": await _lives(ask, delivery, topic),
    }


async def _lives(ask: Ask, delivery: popmq.Delivery, topic: str) -> list[popmq.MessageLife]:
    """Of a dead letter: the life of the message that it was. None if the broker keeps no histories."""
    if not ask.login.has("why"):
        return []
    origin = delivery.dead_letter.topic if delivery.dead_letter else topic
    try:
        return await ask.client.messages.why(delivery.message_id, origin)
    except (popmq.errors.NotFound, popmq.errors.InvalidField):
        return []


async def why(ask: Ask) -> dict[str, Any]:
    """The lives of a message by its id."""
    message_id, topic = ask.value("id"), ask.value("topic")
    lives, refusal = await tried(ask.client.messages.why(message_id, topic), []) if message_id else ([], None)
    return {"id": message_id, "topic": topic, "lives": lives, "refusal": refusal}
